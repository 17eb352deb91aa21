#pragma once

#include <lockstep/amp/cuda/lamb_pack.h>
#include <lockstep/amp/scaler_state.h>
#include <lockstep/amp/update/decision.h>

namespace lockstep::amp::cuda {

/// The kernels, on the current device. `stream` is a cudaStream_t. One launch each unless it
/// says otherwise, sized for the device. They return null, or the name of CUDA's error.
using Problem = const char*;

/// The coefficients of the updates of these spans, one for each span, into device memory: one
/// launch for every 128 spans. For the functors of optimizer_list.h and for LambUpdate.
template <typename Update>
Problem launch_prepare(const Update& update, const UpdateArrays* spans, int64_t count,
                       typename Update::Prepared* coefficients, const StepState* state,
                       void* stream);
/// The update of one span with its coefficients, for the functors of optimizer_list.h.
template <typename Update>
Problem launch_update(const UpdateArrays& arrays, const typename Update::Prepared* coefficients,
                      const StepState* state, void* stream);

/// Three launches for the whole batch. `scratch` and the spans' coefficients lie in device memory.
Problem launch_lamb(const LambUpdate& update, const LambBatch& batch, const LambScratch& scratch,
                    const LambUpdate::Prepared* coefficients, const StepState* state, void* stream);
/// Moves the average alone.
Problem launch_average(const UpdateArrays& arrays, const StepState* state, void* stream);

Problem launch_cast(const Elements& to, const Elements& from, int64_t size, float factor,
                    void* stream);
/// `gradient` may be empty; `state` lies in device memory.
Problem launch_feedback(const Elements& wire, const Elements& gradient, const Residuals& residuals,
                        int64_t size, float factor, const FeedbackState* state, void* stream);
Problem launch_accumulate(const Elements& sum, const Elements& from, int64_t size, void* stream);
/// Two launches. Adds one bucket to `totals`; the same bits for the same input. `partial` has
/// kMeasureBlocks elements.
constexpr int kMeasureBlocks = 512;
Problem launch_measure(const Elements& flat, int64_t size, double* partial, MeasureTotals* totals,
                       void* stream);
Problem launch_advance(ScalerState* state, const ScalerRule& rule, const float* overflow,
                       void* stream);

/// decide() and conclude() by one thread.
Problem launch_decide(Decision* decision, const ScalerState* scaler, const DecisionRule& rule,
                      void* stream);
Problem launch_conclude(Decision* decision, ScalerState* scaler, const DecisionRule& rule,
                        void* stream);

/// 80 for compute capability 8.0; 0 where there is no such device.
int capability(int device);

}  // namespace lockstep::amp::cuda
