#include <c10/core/ScalarType.h>
#include <lockstep/amp/impl/cast_kernels.h>
#include <lockstep/amp/impl/storage_kernels.h>
#include <lockstep/amp/update/span_blocks.h>

#include <algorithm>
#include <type_traits>

namespace lockstep::amp {

namespace {

constexpr int64_t kCacheLine = 64;

template <typename T>
constexpr Element kOwn = std::is_same_v<T, double> ? Element::fp64 : Element::fp32;

c10::ScalarType dtype_of(Element type) {
  static constexpr c10::ScalarType kTypes[] = {c10::ScalarType::Undefined, c10::ScalarType::Float,
                                               c10::ScalarType::Half, c10::ScalarType::BFloat16,
                                               c10::ScalarType::Double};
  return kTypes[static_cast<int>(type)];
}

char* at(const Elements& array, int64_t index) {
  return static_cast<char*>(array.data) +
         index * static_cast<int64_t>(c10::elementSize(dtype_of(array.type)));
}

template <typename T>
T* loaded(const Elements& array, int64_t begin, int64_t size, T* buffer) {
  if (array.type == kOwn<T>) {
    return static_cast<T*>(array.data) + begin;
  }
  if constexpr (std::is_same_v<T, double>) {
    widen(buffer, static_cast<const float*>(array.data) + begin, size);
  } else {
    kernels::cast_scaled(buffer, c10::ScalarType::Float, at(array, begin), dtype_of(array.type),
                         size, 1.0);
  }
  return buffer;
}

/// Prefetches a block that will be cast: the processor's prefetcher follows continuous reads only.
void prefetch(const Elements& array, int64_t begin, int64_t size) {
  for (const char* line = at(array, begin); line < at(array, begin + size); line += kCacheLine) {
    __builtin_prefetch(line);
  }
}

/// Does nothing if `from` is the array itself.
template <typename T>
void store(const Elements& array, int64_t begin, int64_t size, const T* from) {
  if (static_cast<const void*>(at(array, begin)) != from) {
    kernels::cast_scaled(at(array, begin), dtype_of(array.type), from, dtype_of(kOwn<T>), size,
                         1.0);
  }
}

}  // namespace

template <typename T>
UpdateBlock<T> SpanBlocks<T>::load(int64_t block, Buffers& buffers) const {
  const int64_t begin = block * kBlock;
  UpdateBlock<T> result{};
  result.size = std::min(kBlock, arrays_.size - begin);
  result.gradient = loaded(arrays_.gradient, begin, result.size, buffers.gradient);
  if (arrays_.gradient.type != kOwn<T> && begin + kBlock < arrays_.size) {
    prefetch(arrays_.gradient, begin + kBlock, std::min(kBlock, arrays_.size - begin - kBlock));
  }
  if (arrays_.remainder == nullptr) {
    result.weight = loaded(arrays_.updated, begin, result.size, buffers.weight);
  } else if constexpr (std::is_same_v<T, float>) {
    join_masters(buffers.weight, static_cast<const uint16_t*>(arrays_.updated.data) + begin,
                 arrays_.remainder + begin, result.size);
    result.weight = buffers.weight;
  }
  for (int i = 0; i < 2; ++i) {
    if (arrays_.moments[i].data != nullptr) {
      result.moments[i] = loaded(arrays_.moments[i], begin, result.size, buffers.moments[i]);
    }
  }
  return result;
}

template <typename T>
void SpanBlocks<T>::store_weight(int64_t block, const UpdateBlock<T>& from) const {
  const int64_t begin = block * kBlock;
  if constexpr (std::is_same_v<T, float>) {
    auto* const brains = static_cast<uint16_t*>(arrays_.updated.data) + begin;
    if (arrays_.remainder != nullptr) {
      split_masters(brains, arrays_.remainder + begin, from.weight, from.size);
    } else if (arrays_.rounds_randomly) {
      round_randomly(brains, from.weight, from.size, random_.weight, arrays_.first_element + begin);
    } else {
      store(arrays_.updated, begin, from.size, from.weight);
    }
    if (arrays_.copy.data != nullptr) {
      store(arrays_.copy, begin, from.size, from.weight);
    }
  }
  move_average(block, from);
}

template <typename T>
void SpanBlocks<T>::move_average(int64_t block, const UpdateBlock<T>& weights) const {
  if (arrays_.average != nullptr) {
    move_towards(arrays_.average + block * kBlock, weights.weight, weights.size,
                 arrays_.average_rest);
  }
}

template <typename T>
void SpanBlocks<T>::store_moments(int64_t block, const UpdateBlock<T>& from) const {
  if constexpr (std::is_same_v<T, float>) {
    const int64_t begin = block * kBlock;
    for (int i = 0; i < 2; ++i) {
      if (arrays_.moments[i].type == Element::bf16) {
        round_randomly(static_cast<uint16_t*>(arrays_.moments[i].data) + begin, from.moments[i],
                       from.size, random_.moments[i], arrays_.first_element + begin);
      }
    }
  }
}

template class SpanBlocks<float>;
template class SpanBlocks<double>;

}  // namespace lockstep::amp
