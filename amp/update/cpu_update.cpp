#include <ATen/ops/sqrt.h>
#include <lockstep/amp/impl/flat_span.h>
#include <lockstep/amp/impl/optimizer_list.h>
#include <lockstep/amp/update/cpu_update.h>
#include <lockstep/amp/update/lane_sums.h>
#include <lockstep/amp/update/span_blocks.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace lockstep::amp {

namespace {

GradientScale<double> double_scale(const FlatSpan& span, const StepState& state) {
  if (!span.gradient_scale.defined()) {
    const bool limited = state.gradient_limit < std::numeric_limits<float>::max();
    return {state.gradient_factor,
            limited ? state.gradient_limit : std::numeric_limits<double>::infinity()};
  }
  const double* numbers = span.gradient_scale.const_data_ptr<double>();
  return {numbers[0], numbers[1]};
}

/// The blocks for the call operator of `update`. If it takes roots, the moments are updated
/// already, and `roots` of the second moments replace the gradient.
template <typename T, typename Prepared>
SpanBlocks<T> ready(const Prepared& update, const FlatSpan& span, int64_t number,
                    at::Tensor& roots) {
  SpanArrays<T> arrays = arrays_of<T>(span);
  if constexpr (Prepared::kTakesRoots) {
    SpanBlocks<T>(arrays, number).for_each([&](int64_t, const UpdateBlock<T>& block) {
      move_moments(update, block);
    });
    roots = span.moments[1].sqrt();
    arrays.gradient = {roots.mutable_data_ptr(), Element::fp64};
  }
  return {arrays, number};
}

template <typename T, typename Update>
void run(const Update& update, const FlatSpan& span, const StepState& state,
         const GradientScale<T>& scale) {
  at::Tensor roots;
  const auto prepared = update.prepare(state, scale);
  const SpanBlocks<T> blocks = ready<T>(prepared, span, state.update, roots);
  blocks.for_each([&](int64_t i, const UpdateBlock<T>& block) {
    update_block(prepared, block);
    blocks.store_weight(i, block);
    blocks.store_moments(i, block);
  });
}

struct Norms {
  double weights = 0.0;
  double directions = 0.0;
};

template <typename T>
double sum_of_squares(const T* values, int64_t size) {
  LaneSums sums;
  add_squares(values, size, sums);
  return sums.total();
}

/// LAMB's first pass. Sums are added block by block, in order, whatever the number of threads.
template <typename T>
Norms norms_of(const LambUpdate::Direction<T>& direction, const SpanBlocks<T>& blocks) {
  std::vector<Norms> parts(static_cast<size_t>(blocks.count()));
  blocks.for_each([&](int64_t i, UpdateBlock<T> block) {
    alignas(64) T directions[SpanBlocks<T>::kBlock];
    Norms& part = parts[static_cast<size_t>(i)];
    part.weights = sum_of_squares(block.weight, block.size);
    std::copy_n(block.weight, block.size, directions);
    block.weight = directions;
    update_block(direction, block);
    part.directions = sum_of_squares(directions, block.size);
    blocks.store_moments(i, block);
  });
  Norms sum;
  for (const Norms& part : parts) {
    sum.weights += part.weights;
    sum.directions += part.directions;
  }
  return sum;
}

/// LAMB; the span is one parameter.
template <typename T>
void run(const LambUpdate& update, const FlatSpan& span, const StepState& state,
         const GradientScale<T>& scale) {
  at::Tensor roots;
  const auto direction = update.prepare(state, scale);
  const SpanBlocks<T> blocks = ready<T>(direction, span, state.update, roots);
  const Norms norms = norms_of(direction, blocks);
  const auto move = update.prepare_move(direction, state, norms.weights, norms.directions);
  blocks.for_each([&](int64_t i, const UpdateBlock<T>& block) {
    update_block(move, block);
    blocks.store_weight(i, block);
  });
}

}  // namespace

template <typename Update>
void update_on_cpu(const Update& update, const FlatSpan& span, const StepState& state) {
  if (state.skip) {
    return;
  }
  if (is_double(span)) {
    run(update, span, state, double_scale(span, state));
  } else {
    run(update, span, state, state.gradient_scale());
  }
}

#define LOCKSTEP_INSTANTIATE(Update) \
  template void update_on_cpu(const Update&, const FlatSpan&, const StepState&);
LOCKSTEP_FOR_EACH_UPDATE(LOCKSTEP_INSTANTIATE)
LOCKSTEP_INSTANTIATE(LambUpdate)

}  // namespace lockstep::amp
