#include <ATen/Parallel.h>
#include <lockstep/amp/flat_span.h>
#include <lockstep/amp/lamb_rule.h>
#include <lockstep/amp/lane_sums.h>
#include <lockstep/amp/span_blocks.h>
#include <lockstep/collectives/error.h>

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
  check_span(span, LambUpdate::kMoments);
  LOCKSTEP_CHECK(span.gradient.is_cpu(), "LAMB: updates are for host memory, found a span on ",
                 span.gradient.device().str(), "; use AdamW there");
  if (state->skip) {
    return;
  }
  const SpanBlocks blocks(span, LambUpdate::kSecondMoment, state->update);
  const Norms norms = move_moments(update_.prepare(*state), blocks);
  move_weights(update_.prepare_move(*state, norms.weights, norms.directions), blocks);
}

}  // namespace lockstep::amp
