#include <lockstep/amp/impl/cuda_kernels.h>
#include <lockstep/amp/impl/flat_span.h>
#include <lockstep/amp/update/span_blocks.h>

#include <cstdint>

namespace lockstep::amp {

namespace {

template <typename T>
void move_average_as(const FlatSpan& span) {
  const SpanBlocks<T> blocks(arrays_of<T>(span), /*update=*/0);
  blocks.for_each([&](int64_t i, const UpdateBlock<T>& block) { blocks.move_average(i, block); });
}

}  // namespace

void move_average(const FlatSpan& span, const StepState* state) {
  if (!span.average.defined()) {
    return;
  }
  if (span.average.is_cuda()) {
    check_cuda_span(span);
    move_average_on_cuda(span, state);
  } else if (!state->skip) {
    is_double(span) ? move_average_as<double>(span) : move_average_as<float>(span);
  }
}

}  // namespace lockstep::amp
