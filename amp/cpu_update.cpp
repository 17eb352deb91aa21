#include <ATen/Parallel.h>
#include <lockstep/amp/cpu_update.h>
#include <lockstep/amp/span_blocks.h>

namespace lockstep::amp {

namespace {

template <typename Update>
void update_span(const Update& update, const FlatSpan& span, const StepState& state) {
  if (state.skip) {
    return;
  }
  const auto prepared = update.prepare(state);
  const SpanBlocks blocks(span, Update::kSecondMoment, state.update);
  at::parallel_for(0, blocks.blocks(), SpanBlocks::kBlocksPerTask, [&](int64_t begin, int64_t end) {
    SpanBlocks::Buffers buffers;
    for (int64_t i = begin; i < end; ++i) {
      const UpdateBlock block = blocks.load(i, buffers);
      update_block(prepared, block);
      blocks.store_weight(i, block);
      blocks.store_moments(i, block);
    }
  });
}

}  // namespace

void update_on_cpu(const AdamWUpdate& update, const FlatSpan& span, const StepState& state) {
  update_span(update, span, state);
}
void update_on_cpu(const AdamUpdate& update, const FlatSpan& span, const StepState& state) {
  update_span(update, span, state);
}
void update_on_cpu(const LionUpdate& update, const FlatSpan& span, const StepState& state) {
  update_span(update, span, state);
}
void update_on_cpu(const SgdUpdate& update, const FlatSpan& span, const StepState& state) {
  update_span(update, span, state);
}
void update_on_cpu(const MomentumUpdate& update, const FlatSpan& span, const StepState& state) {
  update_span(update, span, state);
}

}  // namespace lockstep::amp
