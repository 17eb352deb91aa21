#pragma once

#include <lockstep/amp/adam_update.h>
#include <lockstep/amp/adamw_update.h>
#include <lockstep/amp/lion_update.h>
#include <lockstep/amp/optimizer.h>
#include <lockstep/amp/sgd_update.h>

namespace lockstep::amp {

/// UpdateRule::apply on host memory: blocks that fit the L1 cache, spread over at::parallel_for.
/// The bits depend neither on the number of threads nor on the SIMD width.
void update_on_cpu(const AdamWUpdate& update, const FlatSpan& span, const StepState& state);
void update_on_cpu(const AdamUpdate& update, const FlatSpan& span, const StepState& state);
void update_on_cpu(const LionUpdate& update, const FlatSpan& span, const StepState& state);
void update_on_cpu(const SgdUpdate& update, const FlatSpan& span, const StepState& state);
void update_on_cpu(const MomentumUpdate& update, const FlatSpan& span, const StepState& state);

}  // namespace lockstep::amp
