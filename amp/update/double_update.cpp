#include <ATen/Parallel.h>
#include <ATen/ops/sqrt.h>
#include <lockstep/amp/update/double_block.h>
#include <lockstep/amp/update/double_update.h>
#include <lockstep/amp/update/lane_sums.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace lockstep::amp {

namespace {

constexpr int64_t kBlock = 1024;
constexpr int64_t kBlocksPerTask = 16;  // below that a thread costs more than it saves

/// The arrays of a span, block by block. A gradient that travelled in fp32 passes through a buffer.
class DoubleBlocks {
 public:
  explicit DoubleBlocks(const FlatSpan& span) : DoubleBlocks(span, span.gradient) {}
  /// With another array, such as roots, in the place of the gradient.
  DoubleBlocks(const FlatSpan& span, at::Tensor gradient)
      : span_(span),
        gradient_(std::move(gradient)),
        moments_{},
        weight_(span.master.mutable_data_ptr<double>()) {
    for (size_t i = 0; i < span.moments.size(); ++i) {
      moments_[i] = span.moments[i].mutable_data_ptr<double>();
    }
  }

  struct Buffer {
    alignas(64) double gradient[kBlock];
  };

  /// Calls body(index of the block, block) on all blocks, from many threads.
  template <typename Body>
  void for_each(const Body& body) const {
    at::parallel_for(0, count(), kBlocksPerTask, [&](int64_t begin, int64_t end) {
      Buffer buffer;
      for (int64_t i = begin; i < end; ++i) {
        body(i, load(i, buffer));
      }
    });
  }

  int64_t count() const { return (gradient_.numel() + kBlock - 1) / kBlock; }

  void move_average(int64_t index, const DoubleBlock& block) const {
    if (span_.average.defined()) {
      move_towards(span_.average.mutable_data_ptr<double>() + index * kBlock, block.weight,
                   block.size, span_.average_rest);
    }
  }

 private:
  DoubleBlock load(int64_t index, Buffer& buffer) const {
    const int64_t begin = index * kBlock;
    DoubleBlock block{};
    block.size = std::min(kBlock, gradient_.numel() - begin);
    block.weight = weight_ + begin;
    if (gradient_.scalar_type() == at::kDouble) {
      block.gradient = gradient_.const_data_ptr<double>() + begin;
    } else {
      std::copy_n(gradient_.const_data_ptr<float>() + begin, block.size, buffer.gradient);
      block.gradient = buffer.gradient;
    }
    for (int i = 0; i < 2; ++i) {
      block.moments[i] = moments_[i] == nullptr ? nullptr : moments_[i] + begin;
    }
    return block;
  }

  const FlatSpan& span_;
  at::Tensor gradient_;
  double* moments_[2];
  double* weight_;
};

DoubleScale scale_of(const FlatSpan& span, const StepState& state) {
  if (!span.gradient_scale.defined()) {
    const bool limited = state.gradient_limit < std::numeric_limits<float>::max();
    return {state.gradient_factor,
            limited ? state.gradient_limit : std::numeric_limits<double>::infinity()};
  }
  const double* numbers = span.gradient_scale.const_data_ptr<double>();
  return {numbers[0], numbers[1]};
}

double sum_of_squares(const double* values, int64_t size) {
  LaneSums sums;
  add_squares(values, size, sums);
  return sums.total();
}

/// The last pass of an optimizer.
template <typename Form>
void move_weights(const Form& form, const DoubleBlocks& blocks) {
  blocks.for_each([&](int64_t index, const DoubleBlock& block) {
    update_block(form, block);
    blocks.move_average(index, block);
  });
}

/// The blocks for the call operator of `form`. Of a form with kTakesRoots the moments have moved,
/// and the roots of the second ones are in the place of the gradient.
template <typename Form>
DoubleBlocks ready(const Form& form, const FlatSpan& span) {
  if constexpr (Form::kTakesRoots) {
    DoubleBlocks(span).for_each(
        [&](int64_t, const DoubleBlock& block) { move_moments(form, block); });
    return {span, span.moments[1].sqrt()};
  } else {
    return DoubleBlocks(span);
  }
}

}  // namespace

template <typename Update>
void update_double(const Update& update, const FlatSpan& span, const StepState& state) {
  if (!state.skip) {
    const auto form = update.prepare_double(state, scale_of(span, state));
    move_weights(form, ready(form, span));
  }
}

#define LOCKSTEP_INSTANTIATE(Update) \
  template void update_double(const Update&, const FlatSpan&, const StepState&);
LOCKSTEP_FOR_EACH_UPDATE(LOCKSTEP_INSTANTIATE)

/// Sums are added block by block, in order, whatever the number of threads.
void update_double(const LambUpdate& update, const FlatSpan& span, const StepState& state) {
  if (state.skip) {
    return;
  }
  const AdamHyperparameters& h = update.hyperparameters;
  const LambUpdate::DoubleDirection direction = update.prepare_double(state, scale_of(span, state));
  const DoubleBlocks blocks = ready(direction, span);
  std::vector<double> weights(static_cast<size_t>(blocks.count()));
  std::vector<double> directions(weights.size());
  blocks.for_each([&](int64_t index, DoubleBlock block) {
    const auto i = static_cast<size_t>(index);
    alignas(64) double moved[kBlock];
    weights[i] = sum_of_squares(block.weight, block.size);
    std::copy_n(block.weight, block.size, moved);
    block.weight = moved;
    update_block(direction, block);
    directions[i] = sum_of_squares(moved, block.size);
  });
  double weight_squares = 0.0;
  double direction_squares = 0.0;
  for (size_t i = 0; i < weights.size(); ++i) {
    weight_squares += weights[i];
    direction_squares += directions[i];
  }
  const bool trusts = h.weight_decay != 0.0 && weight_squares > 0.0 && direction_squares > 0.0;
  const double ratio = trusts ? std::sqrt(weight_squares) / std::sqrt(direction_squares) : 1.0;
  move_weights(LambUpdate::DoubleMove{direction, state.rate(h.lr) * ratio}, blocks);
}

void average_double(const FlatSpan& span, const StepState& state) {
  if (state.skip) {
    return;
  }
  const DoubleBlocks blocks(span);
  blocks.for_each(
      [&](int64_t index, const DoubleBlock& block) { blocks.move_average(index, block); });
}

}  // namespace lockstep::amp
