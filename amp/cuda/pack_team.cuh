#pragma once

#include <lockstep/amp/cuda/row_team.cuh>

namespace lockstep::amp::cuda {

/// Before a loop over a thread's own values: a run-time index would move them to memory.
#ifdef __CUDACC__
#define LOCKSTEP_UNROLL _Pragma("unroll")
#else
#define LOCKSTEP_UNROLL
#endif

/// Threads of a block that processes several rows, or columns of rows.
constexpr int kTeamThreads = 256;
constexpr int kMostThreads = 384;

/// The number of threads for a row (or for columns of all rows), and of rows in a block.
struct TeamShape {
  int threads;
  int groups;
  int block() const { return threads * groups; }
};

/// The shape for rows of `packs` packs. A thread takes up to `each` packs; a block has up to `most`
/// threads unless a row needs more.
inline TeamShape shape_of(int64_t packs, int each, int most = kTeamThreads) {
  const int64_t warps = std::max<int64_t>((packs + kWarp * each - 1) / (kWarp * each), 1);
  const auto threads = static_cast<int>(warps) * kWarp;
  return {threads, std::max(most / threads, 1)};
}

/// The threads of one row in a block of several.
class PackTeam {
 public:
  static constexpr int kMostWarps = 32;

  __device__ explicit PackTeam(int threads)
      : lane(static_cast<int>(threadIdx.x) % threads),
        group(static_cast<int>(threadIdx.x) / threads),
        groups(static_cast<int>(blockDim.x) / threads),
        threads_(threads) {}

  /// The first element of this thread's p-th pack.
  __device__ int column(int p) const { return (lane + p * threads_) * kPack; }

  /// The sum over the team, for all of its threads: over a warp's lanes by halves, then over the
  /// warps in order. All threads of the block must call it.
  __device__ float sum(float own) {
    __shared__ float warps[2][kMostWarps];
    own = joined_lanes(own, Sum());
    if (threads_ == kWarp) {
      return own;
    }
    float* const all = warps[turn_];  // other threads may still read the last sums
    turn_ = 1 - turn_;
    if (threadIdx.x % kWarp == 0) {
      all[threadIdx.x / kWarp] = own;
    }
    __syncthreads();
    const int first = group * threads_ / kWarp;
    float sum = all[first];
    for (int warp = 1; warp < threads_ / kWarp; ++warp) {
      sum += all[first + warp];
    }
    return sum;
  }

  /// Sums over the groups of a block, in order; the threads of the first group write to `to`.
  __device__ void add_groups(const float (&own)[kPack], float* to, bool has_pack) const {
    __shared__ float room[kPack][kMostThreads];
    if (groups > 1) {
      __syncthreads();  // all threads have read the last values
      for (int k = 0; k < kPack; ++k) {
        room[k][threadIdx.x] = own[k];
      }
      __syncthreads();
    }
    if (group == 0 && has_pack) {
      float sum[kPack];
      for (int k = 0; k < kPack; ++k) {
        sum[k] = own[k];
      }
      for (int other = 1; other < groups; ++other) {
        for (int k = 0; k < kPack; ++k) {
          sum[k] += room[k][other * threads_ + lane];
        }
      }
      store_whole(to, sum);
    }
  }

  const int lane;
  const int group;
  const int groups;

 private:
  const int threads_;
  int turn_ = 0;
};

__device__ inline void fill(float (&values)[kPack], float value) {
  for (float& each : values) {
    each = value;
  }
}

/// Loads a pack of a weight or bias; `otherwise` if there is none.
__device__ inline void load_parameter(const float* parameter, int64_t first, float otherwise,
                                      float (&values)[kPack]) {
  if (parameter == nullptr) {
    fill(values, otherwise);
  } else {
    load_whole(parameter + first, values);
  }
}

/// Converts the two 16-bit elements of a word.
__device__ inline void widen_word(uint32_t word, Element type, float* values) {
  if (type == Element::bf16) {
    values[0] = float_of(word << 16U);
    values[1] = float_of(word & 0xffff0000U);
    return;
  }
  values[0] = half_as_float(static_cast<uint16_t>(word));
  values[1] = half_as_float(static_cast<uint16_t>(word >> 16U));
}

/// The packs of a row that one thread processes: `lane`, then every `threads`-th. load() starts all
/// loads before widen() waits for the first.
template <int kPacks>
struct RowPacks {
  float values[kPacks][kPack];

  /// 0 beyond the row, or without a row.
  __device__ void load(const Elements& from, int64_t row, int size, const PackTeam& team,
                       bool active) {
    const bool wide = from.type == Element::fp32;
    LOCKSTEP_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      for (uint32_t& word : words_[p]) {
        word = 0;
      }
      const int at = team.column(p);
      const int64_t first = row * size + at;
      if (active && at < size && wide) {
        load_whole(static_cast<const uint32_t*>(from.data) + first, words_[p]);
      } else if (active && at < size) {
        copy_halves(static_cast<const uint16_t*>(from.data) + first, words_[p]);
      }
    }
  }
  __device__ void widen(Element type) {
    LOCKSTEP_UNROLL
    for (int p = 0; p < kPacks; ++p) {
      for (int k = 0; k < kPack; k += 2) {
        if (type == Element::fp32) {
          values[p][k] = float_of(words_[p][k]);
          values[p][k + 1] = float_of(words_[p][k + 1]);
        } else {
          widen_word(words_[p][k / 2], type, &values[p][k]);
        }
      }
    }
  }

 private:
  __device__ static void copy_halves(const uint16_t* first, uint32_t (&words)[kPack]) {
    struct alignas(16) Access {
      uint32_t words[kPack / 2];
    };
    const Access access = *reinterpret_cast<const Access*>(first);
    for (int k = 0; k < kPack / 2; ++k) {
      words[k] = access.words[k];
    }
  }

  uint32_t words_[kPacks][kPack];  // fp32 uses all eight, 16-bit dtypes the first four
};

}  // namespace lockstep::amp::cuda
