#include <ATen/Parallel.h>
#include <lockstep/amp/cpu_update.h>
#include <lockstep/amp/flat_span.h>
#include <lockstep/amp/update_block.h>
#include <lockstep/collectives/cast_kernels.h>

#include <algorithm>

namespace lockstep::amp {

namespace {

constexpr int64_t kBlock = 1024;        // elements: five fp32 arrays of it fit the L1 cache
constexpr int64_t kBlocksPerTask = 16;  // below that a thread costs more than it saves

/// The arrays of a span as pointers. 16-bit arrays pass through fp32 buffers, block by block.
struct SpanView {
  explicit SpanView(const FlatSpan& span)
      : gradient(const_cast<void*>(span.gradient.const_data_ptr())),
        gradient_dtype(span.gradient.scalar_type()),
        updated(updated_array(span).mutable_data_ptr()),
        updated_dtype(updated_array(span).scalar_type()),
        copy(span.master.defined() && span.weight.defined() ? span.weight.mutable_data_ptr()
                                                            : nullptr),
        copy_dtype(span.weight.defined() ? span.weight.scalar_type() : at::kFloat) {
    for (size_t i = 0; i < span.moments.size(); ++i) {
      moments[i] = static_cast<float*>(span.moments[i].mutable_data_ptr());
    }
  }

  void* gradient;  // only read
  c10::ScalarType gradient_dtype;
  void* updated;
  c10::ScalarType updated_dtype;
  void* copy;  // the model's weight beside a master, or null
  c10::ScalarType copy_dtype;
  float* moments[2] = {nullptr, nullptr};
};

void* element(void* array, c10::ScalarType dtype, int64_t index) {
  return static_cast<char*>(array) + index * static_cast<int64_t>(c10::elementSize(dtype));
}

/// The elements from `begin` as fp32: in place where they are, else in `buffer`.
float* as_float(void* array, c10::ScalarType dtype, int64_t begin, int64_t size, float* buffer) {
  void* first = element(array, dtype, begin);
  if (dtype == at::kFloat) {
    return static_cast<float*>(first);
  }
  kernels::cast_scaled(buffer, at::kFloat, first, dtype, size, 1.0);
  return buffer;
}

void store(const UpdateBlock& block, void* array, c10::ScalarType dtype, int64_t begin) {
  kernels::cast_scaled(element(array, dtype, begin), dtype, block.weight, at::kFloat, block.size,
                       1.0);
}

template <typename Prepared>
void update_range(const Prepared& update, const SpanView& view, int64_t begin, int64_t end) {
  alignas(64) float gradients[kBlock];
  alignas(64) float weights[kBlock];
  for (int64_t i = begin; i < end; i += kBlock) {
    UpdateBlock block{};
    block.size = std::min(kBlock, end - i);
    block.gradient = as_float(view.gradient, view.gradient_dtype, i, block.size, gradients);
    block.weight = as_float(view.updated, view.updated_dtype, i, block.size, weights);
    for (int k = 0; k < 2; ++k) {
      block.moments[k] = view.moments[k] == nullptr ? nullptr : view.moments[k] + i;
    }
    update_block(update, block);
    if (view.updated_dtype != at::kFloat) {
      store(block, view.updated, view.updated_dtype, i);
    }
    if (view.copy != nullptr) {
      store(block, view.copy, view.copy_dtype, i);
    }
  }
}

template <typename Update>
void update_span(const Update& update, const FlatSpan& span, const StepState& state) {
  if (state.skip) {
    return;
  }
  const auto prepared = update.prepare(state);
  const SpanView view(span);
  const int64_t size = span.gradient.numel();
  const int64_t blocks = (size + kBlock - 1) / kBlock;
  at::parallel_for(0, blocks, kBlocksPerTask, [&](int64_t first, int64_t last) {
    update_range(prepared, view, first * kBlock, std::min(last * kBlock, size));
  });
}

}  // namespace

void update_on_cpu(const AdamWUpdate& update, const FlatSpan& span, const StepState& state) {
  update_span(update, span, state);
}
void update_on_cpu(const AdamUpdate& update, const FlatSpan& span, const StepState& state) {
  update_span(update, span, state);
}
void update_on_cpu(const SgdUpdate& update, const FlatSpan& span, const StepState& state) {
  update_span(update, span, state);
}
void update_on_cpu(const MomentumUpdate& update, const FlatSpan& span, const StepState& state) {
  update_span(update, span, state);
}

}  // namespace lockstep::amp
