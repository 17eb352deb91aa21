#include <lockstep/amp/casting/cast_kernels.h>
#include <lockstep/amp/update/flat_span.h>
#include <lockstep/amp/update/span_blocks.h>
#include <lockstep/amp/update/storage_kernels.h>

#include <algorithm>

namespace lockstep::amp {

namespace {

constexpr int64_t kCacheLine = 64;

}  // namespace

SpanBlocks::Array SpanBlocks::array_of(const at::Tensor& tensor) {
  return tensor.defined() ? Array{const_cast<void*>(tensor.const_data_ptr()), tensor.scalar_type()}
                          : Array{};
}

void* SpanBlocks::Array::at(int64_t index) const {
  return static_cast<char*>(data) + index * static_cast<int64_t>(c10::elementSize(dtype));
}

float* SpanBlocks::Array::as_float(int64_t begin, int64_t size, float* buffer) const {
  if (dtype == at::kFloat) {
    return static_cast<float*>(at(begin));
  }
  kernels::cast_scaled(buffer, at::kFloat, at(begin), dtype, size, 1.0);
  return buffer;
}

/// The next block, if it will be cast: the processor's prefetcher follows arrays that are read all
/// the time, not one of which a block is read now and then.
void SpanBlocks::Array::prefetch(int64_t begin, int64_t size) const {
  if (dtype != at::kFloat && begin < size) {
    const auto* from = static_cast<const char*>(at(begin));
    const int64_t bytes =
        std::min(kBlock, size - begin) * static_cast<int64_t>(c10::elementSize(dtype));
    for (int64_t i = 0; i < bytes; i += kCacheLine) {
      __builtin_prefetch(from + i);
    }
  }
}

/// Nothing where `from` already is the array.
void SpanBlocks::Array::store(int64_t begin, int64_t size, const float* from) const {
  if (at(begin) != from) {
    kernels::cast_scaled(at(begin), dtype, from, at::kFloat, size, 1.0);
  }
}

SpanBlocks::SpanBlocks(const FlatSpan& span, int64_t update)
    : size_(span.gradient.numel()),
      gradient_(array_of(span.gradient)),
      updated_(array_of(updated_array(span))),
      copy_(array_of(span.master.defined() ? span.weight : at::Tensor())),
      remainder_(array_of(span.remainder)),
      average_(span.average.defined() ? span.average.mutable_data_ptr<float>() : nullptr),
      average_rest_(static_cast<float>(span.average_rest)),
      rounds_randomly_(span.rounds_randomly),
      random_(SpanRandom::of(span.stream, update)),
      first_element_(span.first_element),
      moments_(static_cast<int>(span.moments.size())) {
  for (int i = 0; i < moments_; ++i) {
    moment_[i] = array_of(span.moments[static_cast<size_t>(i)]);
  }
}

UpdateBlock SpanBlocks::load(int64_t block, Buffers& buffers) const {
  const int64_t begin = block * kBlock;
  UpdateBlock result{};
  result.size = std::min(kBlock, size_ - begin);
  result.gradient = gradient_.as_float(begin, result.size, buffers.gradient);
  gradient_.prefetch(begin + kBlock, size_);
  if (remainder_.data != nullptr) {
    join_masters(buffers.weight, static_cast<const uint16_t*>(updated_.at(begin)),
                 static_cast<const int16_t*>(remainder_.at(begin)), result.size);
    result.weight = buffers.weight;
  } else {
    result.weight = updated_.as_float(begin, result.size, buffers.weight);
  }
  for (int i = 0; i < moments_; ++i) {
    result.moments[i] = moment_[i].as_float(begin, result.size, buffers.moments[i]);
  }
  return result;
}

void SpanBlocks::store_weight(int64_t block, const UpdateBlock& from) const {
  const int64_t begin = block * kBlock;
  if (remainder_.data != nullptr) {
    split_masters(static_cast<uint16_t*>(updated_.at(begin)),
                  static_cast<int16_t*>(remainder_.at(begin)), from.weight, from.size);
  } else if (rounds_randomly_) {
    round_randomly(static_cast<uint16_t*>(updated_.at(begin)), from.weight, from.size,
                   random_.weight, first_element_ + begin);
  } else {
    updated_.store(begin, from.size, from.weight);
  }
  if (copy_.data != nullptr) {
    copy_.store(begin, from.size, from.weight);
  }
  move_average(block, from);
}

void SpanBlocks::move_average(int64_t block, const UpdateBlock& weights) const {
  if (average_ != nullptr) {
    move_towards(average_ + block * kBlock, weights.weight, weights.size, average_rest_);
  }
}

void SpanBlocks::store_moments(int64_t block, const UpdateBlock& from) const {
  const int64_t begin = block * kBlock;
  for (int i = 0; i < moments_; ++i) {
    if (moment_[i].dtype == at::kBFloat16) {
      round_randomly(static_cast<uint16_t*>(moment_[i].at(begin)), from.moments[i], from.size,
                     random_.moments[i], first_element_ + begin);
    }
  }
}

}  // namespace lockstep::amp
