#include <ATen/ops/ones.h>
#include <lockstep/amp/impl/update_rule.h>
#include <lockstep/amp/optimizers.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/plain_tensor.h>
#include <lockstep/runtime/step/impl/trainable.h>
#include <lockstep/runtime/storage/impl/model_memory.h>
#include <torch/nn/module.h>

#include <set>

namespace lockstep::detail {
namespace {

/// Why a model cannot keep this tensor; empty if it can. LibTorch must track lockstep's writes too.
std::string why_not_kept(const at::Tensor& tensor) {
  return tensor.is_inference() ? "was made under InferenceMode, where LibTorch does not track "
                                 "writes: build the model outside of it"
                               : why_not_plain(tensor);
}

/// All tensors of a model pass here. Applies LibTorch's lazy conjugations and minus signs; refuses
/// a tensor whose memory is not its values.
void make_plain(const Model& model) {
  const at::NoGradGuard no_grad;
  for (const auto* tensors : {&model.parameters(), &model.buffers()}) {
    const char* const kind = tensors == &model.buffers() ? "buffer " : "parameter ";
    for (const ModelTensor& entry : *tensors) {
      const std::string reason = why_not_kept(entry.tensor);
      LOCKSTEP_CHECK(reason.empty(), kind, entry.name, " ", reason);
    }
  }
  forget_origins(model);
  const ModelMemory memory(model);
  for (const auto* tensors : {&model.parameters(), &model.buffers()}) {
    const char* const kind = tensors == &model.buffers() ? "buffer " : "parameter ";
    for (const ModelTensor& entry : *tensors) {
      if (is_lazy(entry.tensor)) {
        const std::string user = memory.other_user(entry);
        LOCKSTEP_CHECK(user.empty(), kind, entry.name,
                       " has a lazy conjugation or minus sign, and shares its memory with ", user,
                       ", which would keep the old memory: register its resolve_conj() and "
                       "resolve_neg()");
        entry.tensor.set_data(applied(entry.tensor.detach()));
      }
    }
  }
}

bool is_double(const ModelTensor& entry) {
  return c10::toRealValueType(entry.tensor.scalar_type()) == at::kDouble;
}

}  // namespace

Trainable trainable_parameters(const Model& model) {
  make_plain(model);
  return trainable_now(model, {});
}

Trainable trainable_now(const Model& model, const Trainable& before) {
  Trainable result;
  std::set<const void*> held;
  for (const ModelTensor& entry : before.parameters) {
    held.insert(entry.tensor.unsafeGetTensorImpl());
  }
  for (const ModelTensor& entry : model.parameters()) {
    const at::Tensor& tensor = entry.tensor;
    if (!tensor.requires_grad()) {
      result.frozen.push_back(entry);
      continue;
    }
    const bool half_pairs = tensor.scalar_type() == at::kComplexHalf;
    const bool is_tiny = at::isReducedFloatingType(tensor.scalar_type()) &&
                         tensor.scalar_type() != at::kHalf && tensor.scalar_type() != at::kBFloat16;
    LOCKSTEP_CHECK((tensor.is_floating_point() || tensor.is_complex()) && !half_pairs && !is_tiny,
                   "parameter ", entry.name, " has dtype ", tensor.scalar_type(),
                   "; only fp64, fp32, fp16, bf16, complex64 and complex128 can be trained",
                   half_pairs ? ". Convert it with to(torch::kComplexFloat)" : "");
    if (held.count(tensor.unsafeGetTensorImpl()) == 0) {
      require_unhooked(entry);
    }
    result.parameters.push_back(entry);
  }
  LOCKSTEP_CHECK(!result.parameters.empty(), "the model has no trainable parameter (",
                 result.frozen.size(), " are frozen); set requires_grad before wrapping it");
  return result;
}

void require_trainable_doubles(const std::vector<ModelTensor>& parameters,
                               const Precision& precision, const OptimizerSpec& optimizer,
                               c10::Device device) {
  const FusedOptimizer* const fused = optimizer.fused();
  for (const ModelTensor& entry : parameters) {
    if (!is_double(entry)) {
      continue;
    }
    const bool pairs = entry.tensor.is_complex();
    const std::string what = c10::str("parameter ", entry.name, " is ",
                                      pairs ? "complex128, pairs of fp64" : "fp64", ", and ");
    const std::string or_narrower =
        pairs ? "or make it complex64" : "or call model->to(torch::kFloat)";
    LOCKSTEP_CHECK(!precision.autocast(), what, precision.describe(),
                   " computes in 16 bits: train it with Precision::O0(), ", or_narrower);
    const c10::ScalarType wire = wire_dtype(entry, precision);
    LOCKSTEP_CHECK(!at::isReducedFloatingType(wire), what, "its gradient would travel as ", wire,
                   ": leave Precision::wire() out for fp64, use wire(torch::kFloat), ",
                   or_narrower);
    LOCKSTEP_CHECK(fused == nullptr ||
                       fused->rule(fused->group_of(entry))->moment_format() == MomentFormat::fp32,
                   what, optimizer.describe(),
                   " would keep its moments in fewer bits than fp32: use MomentFormat::fp32, with "
                   "which they are fp64, ",
                   or_narrower);
    LOCKSTEP_CHECK(fused == nullptr || device.is_cpu(), what, optimizer.describe(),
                   " updates fp64 in host memory only, not on ", device,
                   ": use TorchOptimizer, train on the host (LOCKSTEP_DEVICE=cpu), ", or_narrower);
  }
}

std::string with_groups(const std::string& description, const OptimizerSpec& optimizer,
                        const std::vector<ModelTensor>& parameters) {
  const auto groups = static_cast<size_t>(optimizer.groups());
  if (groups == 1) {
    return description + "\n";
  }
  std::vector<int64_t> count(groups), elements(groups);
  for (const ModelTensor& entry : parameters) {
    const auto group = static_cast<size_t>(optimizer.group_of(entry));
    count[group] += 1;
    elements[group] += entry.tensor.numel();
  }
  std::string text = description.substr(0, description.find("; group ")) + "\n";
  for (size_t g = 0; g < groups; ++g) {
    text += c10::str("  group ", g, "  ", count[g], " parameters, ", elements[g],
                     " elements: ", optimizer.describe_group(static_cast<int>(g)), "\n");
  }
  return text;
}

void move_to(const Model& model, c10::Device device) {
  if (model.module() != nullptr) {
    model.module()->to(device);  // a user's module may do more than move its tensors
  }
  const at::NoGradGuard no_grad;
  for (const auto* tensors : {&model.parameters(), &model.buffers()}) {
    for (const ModelTensor& entry : *tensors) {
      if (entry.tensor.device() != device) {
        entry.tensor.set_data(entry.tensor.to(device));
      }
    }
  }
}

void require_device(const Model& model, c10::Device device) {
  const auto check = [&](const char* kind, const std::vector<ModelTensor>& tensors) {
    for (const ModelTensor& entry : tensors) {
      LOCKSTEP_CHECK(entry.tensor.device() == device, kind, " ", entry.name, " is on ",
                     entry.tensor.device(), ", the communicator reduces tensors of ", device,
                     "; move the model with to(runtime.device()) before it is wrapped");
    }
  };
  check("parameter", model.parameters());
  check("buffer", model.buffers());
}

c10::ScalarType wire_dtype(c10::ScalarType parameter, std::optional<c10::ScalarType> wire) {
  return parameter == c10::ScalarType::Double ? parameter : wire.value_or(parameter);
}

c10::ScalarType wire_dtype(const ModelTensor& parameter, const Precision& precision) {
  const bool as_it_is = is_double(parameter) && !precision.autocast() && !precision.names_wire();
  return as_it_is ? at::kDouble : precision.wire_dtype();
}

namespace {

std::optional<std::string> changed_since_construction(const Trainable& trainable) {
  for (const ModelTensor& entry : trainable.frozen) {
    if (entry.tensor.requires_grad()) {
      return c10::str("parameter ", entry.name,
                      " was frozen when the model was wrapped and is trainable now; call "
                      "Trainer::adopt_trainable() after such a change, or wrap the model again in "
                      "a new DataParallel");
    }
  }
  for (const ModelTensor& entry : trainable.parameters) {
    if (!entry.tensor.requires_grad()) {
      return c10::str("parameter ", entry.name,
                      " was trainable when the model was wrapped and is frozen now; call "
                      "Trainer::adopt_trainable() after such a change, or wrap the model again in "
                      "a new DataParallel");
    }
  }
  return std::nullopt;
}

std::string unused_names(const Reducer& reducer) {
  std::string names;
  for (const int index : reducer.unused()) {
    names += (names.empty() ? "" : ", ") + reducer.parameters()[static_cast<size_t>(index)].name;
  }
  return names;
}

}  // namespace

std::optional<Error> window_problem(const Reducer& reducer, const Trainable& trainable,
                                    UnusedParameters policy) {
  if (reducer.problem().has_value()) {
    return reducer.problem();
  }
  if (auto changed = changed_since_construction(trainable)) {
    return Error(*changed);
  }
  if (policy == UnusedParameters::error && !reducer.unused().empty()) {
    return Error(c10::str("parameters got no gradient in this update: ", unused_names(reducer),
                          ". For each of them: is another tensor used in its place (a tie made "
                          "after the model was wrapped, or in a module of your own)? Then tie "
                          "before wrapping, and do not register the one that is not used. Else its "
                          "output does not reach the loss; if that is meant, choose "
                          "UnusedParameters::zeros or detect"));
  }
  return std::nullopt;
}

std::vector<char> used_anywhere(const Reducer& reducer, const Communicator& control) {
  const auto count = static_cast<int64_t>(reducer.parameters().size());
  const at::Tensor used = at::ones({count}, at::kByte);
  for (const int index : reducer.unused()) {
    used.mutable_data_ptr<uint8_t>()[index] = 0;
  }
  control.all_reduce(used, ReduceOp::max()).wait();
  const auto* values = used.const_data_ptr<uint8_t>();
  return {values, values + count};
}

}  // namespace lockstep::detail
