#include <ATen/Parallel.h>
#include <lockstep/amp/cuda/cuda_kernels.h>
#include <lockstep/amp/update/average.h>
#include <lockstep/amp/update/double_update.h>
#include <lockstep/amp/update/flat_span.h>
#include <lockstep/amp/update/span_blocks.h>

namespace lockstep::amp {

void move_average(const FlatSpan& span, const StepState* state) {
  if (!span.average.defined()) {
    return;
  }
  if (is_double(span)) {
    average_double(span, *state);
    return;
  }
  if (span.average.is_cuda()) {
    check_cuda_span(span);
    move_average_on_cuda(span, state);
    return;
  }
  if (state->skip) {
    return;
  }
  const SpanBlocks blocks(span, /*update=*/0);
  at::parallel_for(0, blocks.blocks(), SpanBlocks::kBlocksPerTask, [&](int64_t begin, int64_t end) {
    SpanBlocks::Buffers buffers;
    for (int64_t i = begin; i < end; ++i) {
      blocks.move_average(i, blocks.load(i, buffers));
    }
  });
}

}  // namespace lockstep::amp
