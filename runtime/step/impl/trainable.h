#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/model.h>
#include <lockstep/amp/optimizer.h>
#include <lockstep/amp/precision.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/policies.h>
#include <lockstep/runtime/step/impl/reducer.h>
#include <lockstep/runtime/storage/impl/bucket_plan.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::detail {

/// The parameters that a wrapper averages, and those that were frozen when it was made.
struct Trainable {
  std::vector<ModelTensor> parameters;
  std::vector<ModelTensor> frozen;
};

/// The parameters of a model that is about to be wrapped. Applies LibTorch's lazy conjugations and
/// minus signs to its tensors. Throws Error for a model without a trainable parameter, for integer
/// and complex32 parameters, for tensors whose memory is not their values (sparse, quantised, ...),
/// and where another wrapper holds the model.
Trainable trainable_parameters(const Model& model);

/// trainable_parameters() for a model that is already wrapped: keeps the hooks of that wrapper,
/// which has `before`.
Trainable trainable_now(const Model& model, const Trainable& before);

/// Throws Error naming the first fp64 or complex128 parameter that cannot be trained so: at O1 to
/// O3, with a 16-bit wire, with moments in fewer bits, or by a fused optimizer on a device.
void require_trainable_doubles(const std::vector<ModelTensor>& parameters,
                               const Precision& precision, const OptimizerSpec& optimizer,
                               c10::Device device);

/// Lines of a summary: `description` of an optimizer, and for each group, if there are several,
/// what it has and its options.
std::string with_groups(const std::string& description, const OptimizerSpec& optimizer,
                        const std::vector<ModelTensor>& parameters);

/// Moves the model. Its parameters and buffers stay the same tensors.
void move_to(const Model& model, c10::Device device);

/// Throws Error naming the first parameter or buffer that is not on `device`.
void require_device(const Model& model, c10::Device device);

/// fp64 travels as fp64, everything else in `wire` if set, else in its own dtype.
c10::ScalarType wire_dtype(c10::ScalarType parameter, std::optional<c10::ScalarType> wire);

/// The dtype in which the gradient of a Trainer's parameter, or its real view, travels: an fp64
/// one's as fp64 unless the program chose a wire.
c10::ScalarType wire_dtype(const ModelTensor& parameter, const Precision& precision);

/// The Error of this rank's window, if any: a hook's problem, parameters unused against the policy,
/// or a change of requires_grad since construction. Call it after Reducer::launch_rest().
std::optional<Error> window_problem(const Reducer& reducer, const Trainable& trainable,
                                    UnusedParameters policy);

/// For UnusedParameters::detect: 1 for each parameter that some rank used. Collective.
std::vector<char> used_anywhere(const Reducer& reducer, const Communicator& control);

}  // namespace lockstep::detail
