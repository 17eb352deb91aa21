#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <c10/core/Device.h>
#include <lockstep/amp/impl/decision.h>
#include <lockstep/amp/impl/lamb_update.h>
#include <lockstep/amp/impl/scaler_state.h>
#include <lockstep/amp/impl/update_rule.h>

#include <vector>

namespace lockstep::amp {

/// The amp kernels for CUDA tensors. In a build without CUDA they throw Error.
/// All run on the current stream of the device; the host never waits.
bool cuda_kernels_available();

/// 80 for compute capability 8.0.
int cuda_capability(c10::Device device);

/// advance() on device memory; `overflow` is one element there.
void advance_on_cuda(ScalerState* state, const ScalerRule& rule, const float* overflow,
                     c10::Device device);

/// decide() and conclude() on device memory.
void decide_on_cuda(Decision* decision, const ScalerState* scaler, const DecisionRule& rule,
                    c10::Device device);
void conclude_on_cuda(Decision* decision, ScalerState* scaler, const DecisionRule& rule,
                      c10::Device device);

/// to = from * factor, multiplied in fp32 and rounded once; contiguous, fp32, fp16 or bf16. Or both
/// fp64, and multiplied in it: by LibTorch's own kernels.
void cast_on_cuda(const at::Tensor& to, const at::Tensor& from, double factor);
/// cast_on_cuda() of to[i] and from[i] for each i, with one launch for every 120 of them.
void cast_all_on_cuda(const std::vector<at::Tensor>& to, const std::vector<at::Tensor>& from,
                      double factor);
/// sum += from, in fp32; `sum` is fp32.
void accumulate_on_cuda(const at::Tensor& sum, const at::Tensor& from);
/// Adds a bucket to `totals`, two fp64 elements of the device: the sum of squares, and the number
/// of buckets with an element that is not finite.
void measure_on_cuda(const at::Tensor& flat, const at::Tensor& totals,
                     const MeasuredParts& parts = {});
/// Its two halves (flat_kernels.h). The bits depend on the parts, not on the device.
int64_t measured_sums_on_cuda(const MeasuredParts& parts);
void measure_part_on_cuda(const at::Tensor& flat, const MeasuredParts& parts, int part,
                          const at::Tensor& sums);
void add_measured_on_cuda(const at::Tensor& sums, const at::Tensor& totals);

/// move_average() on device memory.
void move_average_on_cuda(const FlatSpan& span, const StepState* state);

/// UpdateRule::apply_all on device memory, for the functors of optimizer_list.h: one launch for the
/// coefficients of every 128 spans, and one for each span.
template <typename Update>
void update_on_cuda(const Update& update, const std::vector<FlatSpan>& spans,
                    const StepState* state);
/// Each span is a whole parameter: one launch for the coefficients of every 128 spans, and three
/// for every 16.
void update_on_cuda(const LambUpdate& update, const std::vector<FlatSpan>& spans,
                    const StepState* state);

}  // namespace lockstep::amp
