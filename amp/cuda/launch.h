#pragma once

#include <lockstep/amp/cuda/cast_batch.h>
#include <lockstep/amp/cuda/lamb_pack.h>
#include <lockstep/amp/impl/decision.h>
#include <lockstep/amp/impl/scaler_state.h>

namespace lockstep::amp::cuda {

/// Launch kernels on the current device. `stream`: a cudaStream_t. One launch each unless stated
/// otherwise. They return null, or the name of the CUDA error.
using Problem = const char*;

/// Writes the coefficients of each span's update to device memory: one launch for every 128 spans.
/// For the functors of optimizer_list.h and for LambUpdate.
template <typename Update>
Problem launch_prepare(const Update& update, const UpdateArrays* spans, int64_t count,
                       Coefficients<Update>* coefficients, const StepState* state, void* stream);
/// The update of one span with its coefficients, for the functors of optimizer_list.h.
template <typename Update>
Problem launch_update(const UpdateArrays& arrays, const Coefficients<Update>* coefficients,
                      const StepState* state, void* stream);

/// Three launches for the whole batch. `scratch` and the spans' coefficients lie in device memory.
Problem launch_lamb(const LambUpdate& update, const LambBatch& batch, const LambScratch& scratch,
                    const Coefficients<LambUpdate>* coefficients, const StepState* state,
                    void* stream);
/// Updates the moving average only.
Problem launch_average(const UpdateArrays& arrays, const StepState* state, void* stream);

Problem launch_cast(const Elements& to, const Elements& from, int64_t size, float factor,
                    void* stream);
/// All arrays of the batch.
Problem launch_casts(const CastBatch& batch, float factor, void* stream);
Problem launch_accumulate(const Elements& sum, const Elements& from, int64_t size, void* stream);
/// The number of blocks that measure a part, each with its own sum. Depends on the parts only, so
/// the bits do not depend on the device.
int measuring_blocks(const MeasuredParts& parts);
/// Measures parts `first` to `first + count - 1` of `flat`. `partial` has measuring_blocks() sums
/// for each of all parts; those of other parts are not changed. parts.each is not 0.
Problem launch_squares(const Elements& flat, int64_t size, const MeasuredParts& parts, int first,
                       int count, double* partial, void* stream);
/// Adds one bucket to `totals`: the `sums` elements of `partial`.
Problem launch_totals(const double* partial, int sums, MeasureTotals* totals, void* stream);
Problem launch_advance(ScalerState* state, const ScalerRule& rule, const float* overflow,
                       void* stream);

/// decide() and conclude() by one thread.
Problem launch_decide(Decision* decision, const ScalerState* scaler, const DecisionRule& rule,
                      void* stream);
Problem launch_conclude(Decision* decision, ScalerState* scaler, const DecisionRule& rule,
                        void* stream);

/// 80 for compute capability 8.0; 0: there is no such device.
int capability(int device);

}  // namespace lockstep::amp::cuda
