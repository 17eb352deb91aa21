#include <ATen/Parallel.h>
#include <lockstep/amp/cuda/cuda_kernels.h>
#include <lockstep/amp/update/double_update.h>
#include <lockstep/amp/update/flat_span.h>
#include <lockstep/amp/update/lamb_rule.h>
#include <lockstep/amp/update/lane_sums.h>
#include <lockstep/amp/update/span_blocks.h>

#include <algorithm>

namespace lockstep::amp {

namespace {

struct Norms {
  double weights = 0.0;
  double directions = 0.0;
};

double sum_of_squares(const float* values, int64_t size) {
  LaneSums sums;
  add_squares(values, size, sums);
  return sums.total();
}

/// Moves the moments. Sums are added block by block, in order, whatever the number of threads.
Norms move_moments(const LambUpdate::Direction& direction, const SpanBlocks& blocks) {
  std::vector<Norms> parts(static_cast<size_t>(blocks.blocks()));
  at::parallel_for(0, blocks.blocks(), SpanBlocks::kBlocksPerTask, [&](int64_t begin, int64_t end) {
    SpanBlocks::Buffers buffers;
    alignas(64) float directions[SpanBlocks::kBlock];
    for (int64_t i = begin; i < end; ++i) {
      UpdateBlock block = blocks.load(i, buffers);
      Norms& part = parts[static_cast<size_t>(i)];
      part.weights = sum_of_squares(block.weight, block.size);
      std::copy_n(block.weight, block.size, directions);
      block.weight = directions;
      update_block(direction, block);
      part.directions = sum_of_squares(directions, block.size);
      blocks.store_moments(i, block);
    }
  });
  Norms sum;
  for (const Norms& part : parts) {
    sum.weights += part.weights;
    sum.directions += part.directions;
  }
  return sum;
}

void move_weights(const LambUpdate::Move& move, const SpanBlocks& blocks) {
  at::parallel_for(0, blocks.blocks(), SpanBlocks::kBlocksPerTask, [&](int64_t begin, int64_t end) {
    SpanBlocks::Buffers buffers;
    for (int64_t i = begin; i < end; ++i) {
      const UpdateBlock block = blocks.load(i, buffers);
      update_block(move, block);
      blocks.store_weight(i, block);
    }
  });
}

}  // namespace

void LambRule::apply(const FlatSpan& span, const StepState* state) const {
  if (span.gradient.is_cuda()) {
    apply_all({span}, state);
    return;
  }
  check_span(span, LambUpdate::kMoments);
  if (is_double(span)) {
    update_double(update_, span, step_of(span, *state));
    return;
  }
  if (state->skip) {
    return;
  }
  const StepState own = step_of(span, *state);
  const SpanBlocks blocks(span, own.update);
  const LambUpdate::Direction direction = update_.prepare(own);
  const Norms norms = move_moments(direction, blocks);
  move_weights(update_.prepare_move(direction, own, norms.weights, norms.directions), blocks);
}

void LambRule::apply_all(const std::vector<FlatSpan>& spans, const StepState* state) const {
  if (spans.empty() || !spans.front().gradient.is_cuda()) {
    UpdateRule::apply_all(spans, state);
    return;
  }
  for (const FlatSpan& span : spans) {
    check_span(span, LambUpdate::kMoments);
    check_cuda_span(span);
  }
  update_on_cuda(update_, spans, state);
}

}  // namespace lockstep::amp
