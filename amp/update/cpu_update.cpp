#include <ATen/Parallel.h>
#include <lockstep/amp/update/cpu_update.h>
#include <lockstep/amp/update/optimizer_list.h>
#include <lockstep/amp/update/span_blocks.h>

namespace lockstep::amp {

template <typename Update>
void update_on_cpu(const Update& update, const FlatSpan& span, const StepState& state) {
  if (state.skip) {
    return;
  }
  const auto prepared = update.prepare(state);
  const SpanBlocks blocks(span, state.update);
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

#define LOCKSTEP_INSTANTIATE(Update) \
  template void update_on_cpu(const Update&, const FlatSpan&, const StepState&);
LOCKSTEP_FOR_EACH_UPDATE(LOCKSTEP_INSTANTIATE)

}  // namespace lockstep::amp
