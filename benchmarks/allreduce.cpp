// allreduce [SCALE [crowded]]: times all-reduces, ours and the peers in turn, SCALE times the usual
// number of calls. Buffers are filled with fresh data before each call, then all ranks meet. Only 2
// ranks of one node run the bound and private tensors, and not with `crowded`: ranks that share a
// core would be stopped by a barrier that spins.
#include <ATen/ATen.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/mpi_session.h>
#include <mpi.h>

#include <algorithm>
#include <array>
#include <functional>
#include <iostream>
#include <optional>
#include <vector>

#include "allreduce_sizes.h"
#include "bare_kernels.h"
#include "mpi_sum.h"
#include "recorder.h"
#include "shared_pair.h"

namespace lockstep::benchmarks {
namespace {

struct Type {
  const char* name;
  c10::ScalarType dtype;
};
constexpr std::array<Type, 3> types = {{{"fp32", c10::ScalarType::Float},
                                        {"fp16", c10::ScalarType::Half},
                                        {"bf16", c10::ScalarType::BFloat16}}};

struct Contender {
  Series series;
  at::Tensor buffer;
  std::function<void()> reduce;
};

/// Each rank sums its half of both buffers and writes the result to both.
void bare_sum(SharedPair& pair, const at::Tensor& buffer) {
  const int64_t half = buffer.numel() / 2;
  const size_t offset = static_cast<size_t>(pair.rank() * half) * buffer.element_size();
  pair.barrier();
  sum_to_both(buffer.scalar_type(), static_cast<char*>(pair.buffer(0)) + offset,
              static_cast<char*>(pair.buffer(1)) + offset, half);
  pair.barrier();
}

void meet(std::optional<SharedPair>& pair) {
  if (pair) {
    pair->barrier();
  } else {
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

/// One call, timed unless it is to warm up; throws Error where the sum is wrong.
void call_once(Contender& contender, const Communicator& world, std::optional<SharedPair>& pair,
               int base, bool is_timed) {
  const int ranks = world.size();
  contender.buffer.fill_(base + world.rank());
  meet(pair);
  if (is_timed) {
    contender.series.begin();
  }
  contender.reduce();
  if (is_timed) {
    contender.series.end();
  }
  const int expected = ranks * base + ranks * (ranks - 1) / 2;
  for (const int64_t at :
       {int64_t{0}, contender.buffer.numel() / 2, contender.buffer.numel() - 1}) {
    const double sum = contender.buffer[at].item().toDouble();
    LOCKSTEP_CHECK(sum == expected, "rank ", world.rank(), ": element ", at, " is ", sum,
                   ", the sum is ", expected);
  }
  meet(pair);
}

/// Runs the contenders in turn. Each makes several calls of a small tensor at a time, so that the
/// others do not displace its memory from the caches.
void compare(std::vector<Contender>& contenders, const Communicator& world,
             std::optional<SharedPair>& pair, int calls, bool is_small) {
  const int turn = is_small ? 50 : 1;
  for (int made = 0; made < calls; made += turn) {
    const int untimed = made == 0 || is_small ? warm_up_calls : 0;
    for (Contender& contender : contenders) {
      for (int call = -untimed; call < std::min(turn, calls - made); ++call) {
        call_once(contender, world, pair, 1 + (made + call + untimed) % 5, call >= 0);
      }
    }
  }
}

void measure(Communicator& world, std::optional<SharedPair>& pair, const Type& type,
             const Size& size, double scale) {
  const MpiSum mpi(type.dtype);
  const auto options = at::TensorOptions(type.dtype);
  const int64_t numel = size.bytes / static_cast<int64_t>(c10::elementSize(type.dtype));
  const std::string name = std::string(type.name) + " " + size.name;
  const at::Tensor window = world.allocate(numel, type.dtype);
  const at::Tensor private_copy = at::empty({numel}, options);
  const at::Tensor mpi_buffer = at::empty({numel}, options);

  std::vector<Contender> contenders = {
      {Series(name, "ours"), window, [&] { world.all_reduce(window).wait(); }},
      {Series(name, mpi.variant), mpi_buffer, [&] {
         MPI_Allreduce(MPI_IN_PLACE, mpi_buffer.data_ptr(), static_cast<int>(numel), mpi.type,
                       mpi.operation, MPI_COMM_WORLD);
       }}};
  if (pair) {
    const at::Tensor bare = at::from_blob(pair->buffer(pair->rank()), {numel}, options);
    contenders.push_back({Series(name, "bound"), bare, [&pair, bare] { bare_sum(*pair, bare); }});
    contenders.push_back({Series(name, "ours-copied"), private_copy,
                          [&] { world.all_reduce(private_copy).wait(); }});
  }
  compare(contenders, world, pair, std::max(3, static_cast<int>(size.calls * scale)),
          size.bytes <= 64 << 10);
  for (const Contender& contender : contenders) {
    contender.series.write();
  }
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  using namespace lockstep;
  const double scale = argc > 1 ? std::stod(argv[1]) : 1.0;
  try {
    const MpiSession session;
    Communicator world = session.world();
    std::optional<benchmarks::SharedPair> pair;
    if (world.size() == 2 && world.local_size() == 2 && argc < 3) {
      pair.emplace(32 << 20);
    }
    for (const auto& type : benchmarks::types) {
      for (const auto& size : benchmarks::sizes) {
        benchmarks::measure(world, pair, type, size, scale);
      }
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << argv[0] << ": " << error.what() << "\n";
    return 1;
  }
}
