#include <c10/core/GradMode.h>
#include <lockstep/amp/impl/kept_fp32.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/step/impl/model_watch.h>
#include <lockstep/runtime/storage/impl/flat.h>
#include <lockstep/runtime/storage/impl/model_memory.h>
#include <torch/nn/module.h>

namespace lockstep::detail {
namespace {

bool is_at(const at::Tensor& home, const at::Tensor& parameter) {
  return parameter.is_alias_of(home) && parameter.storage_offset() == home.storage_offset() &&
         parameter.scalar_type() == home.scalar_type() && parameter.sizes() == home.sizes() &&
         parameter.strides() == home.strides() && parameter.is_conj() == home.is_conj() &&
         parameter.is_neg() == home.is_neg() &&
         amp::computes_in_fp32(parameter) == amp::computes_in_fp32(home);
}

/// True if the parameter can go back to the memory of `home` with all its aliases.
bool can_follow(const at::Tensor& home, const at::Tensor& parameter) {
  return parameter.scalar_type() == home.scalar_type() && parameter.device() == home.device() &&
         same_memory_order(parameter, home) && fills_its_storage(parameter);
}

void note_all(const torch::nn::Module& module, std::unordered_set<const void*>& known) {
  for (const at::Tensor& parameter : module.parameters()) {
    known.insert(parameter.unsafeGetTensorImpl());
  }
}

/// True if a 16-bit tensor is over memory of fp32 size: torch::load replaces the memory and leaves
/// the dtype, so that the numbers are wrong.
bool holds_fp32_bytes(const at::Tensor& tensor) {
  return at::isReducedFloatingType(tensor.scalar_type()) && tensor.numel() > 0 &&
         tensor.storage_offset() == 0 &&
         tensor.storage().nbytes() == static_cast<size_t>(tensor.numel()) * sizeof(float);
}

/// The name of a parameter that is not known; empty if there is none.
std::string unknown(const torch::nn::Module& module, const std::string& prefix,
                    const std::unordered_set<const void*>& known) {
  for (const auto& parameter : module.named_parameters(/*recurse=*/false)) {
    if (known.count(parameter.value().unsafeGetTensorImpl()) == 0) {
      return prefix + parameter.key();
    }
  }
  for (const auto& child : module.named_children()) {
    std::string name = unknown(*child.value(), prefix + child.key() + ".", known);
    if (!name.empty()) {
      return name;
    }
  }
  return {};
}

}  // namespace

void ModelWatch::Follower::point() const {
  if (parameter.numel() > 0) {
    share_memory(parameter, storage);
  }
}

ModelWatch::ModelWatch(Model model, const Trainable& trainable, int64_t period,
                       std::vector<Follower> followers)
    : model_(std::move(model)), followers_(std::move(followers)), period_(period) {
  for (const Follower& follower : followers_) {
    follower.point();
  }
  for (const ModelTensor& entry : trainable.parameters) {
    places_.push_back({entry.name, entry.tensor, entry.tensor.detach()});
  }
  for (const ModelTensor& entry : model_.parameters()) {
    if (amp::computes_in_fp32(entry.tensor)) {
      kept_fp32_.push_back(entry.tensor);
    }
  }
  if (model_.module() != nullptr) {
    note_all(*model_.module(), known_);
  }
}

std::optional<Error> ModelWatch::departure() const {
  for (const Place& place : places_) {
    const at::Tensor& parameter = place.parameter;
    if (!is_at(place.home, parameter)) {
      return Error(c10::str(
          "parameter ", place.name, " left the Trainer's memory: it is ", parameter.scalar_type(),
          " of sizes ", parameter.sizes(),
          " in memory of its own now (torch::load, Module::to(dtype) and set_data do that), and "
          "training would not reach it. Call trainer.adopt_weights() on every rank to train the "
          "weights that the model has now. To load weights into a Trainer call "
          "trainer.load_weights(path); to evaluate, leave the model's dtype and run it under "
          "lockstep::amp::Autocast"));
    }
  }
  return std::nullopt;
}

std::optional<Error> ModelWatch::addition() const {
  if (model_.module() == nullptr) {
    return std::nullopt;
  }
  const std::string name = unknown(*model_.module(), "", known_);
  if (name.empty()) {
    return std::nullopt;
  }
  return Error(c10::str("parameter ", name,
                        " came to the model after the Trainer was made: no rank would train or "
                        "save it. Build the whole model first, then make the Trainer"));
}

void ModelWatch::require_unchanged(bool window_begins) {
  if (const auto problem = departure()) {
    throw *problem;
  }
  if (window_begins && windows_++ % period_ == 0) {
    if (const auto problem = addition()) {
      windows_ = 0;
      throw *problem;
    }
  }
}

void ModelWatch::require_adoptable() const {
  for (const Place& place : places_) {
    LOCKSTEP_CHECK(place.parameter.sizes() == place.home.sizes(), "adopt_weights(): parameter ",
                   place.name, " has sizes ", place.parameter.sizes(), ", the Trainer trains ",
                   place.home.sizes(), "; load weights of the same model, or make a new Trainer");
    LOCKSTEP_CHECK(place.home.is_complex() ? place.parameter.is_complex()
                                           : place.parameter.is_floating_point(),
                   "adopt_weights(): parameter ", place.name, " has dtype ",
                   place.parameter.scalar_type(), "; convert it to ", place.home.scalar_type());
  }
  const ModelMemory memory(model_);
  for (const Place& place : places_) {
    const bool moves = !is_at(place.home, place.parameter);
    const std::string user = moves && !can_follow(place.home, place.parameter)
                                 ? memory.other_user({place.name, {}, place.parameter})
                                 : std::string();
    LOCKSTEP_CHECK(
        user.empty(), "adopt_weights(): parameter ", place.name, " shares its memory with ", user,
        ", which would keep that memory for ever: ", "the Trainer stores the parameter in ",
        place.home.scalar_type(), " with strides ", place.home.strides(),
        ". Make such tensors after adopt_weights()");
  }
  for (const auto* tensors : {&model_.parameters(), &model_.buffers()}) {
    for (const ModelTensor& entry : *tensors) {
      LOCKSTEP_CHECK(!holds_fp32_bytes(entry.tensor), "adopt_weights(): ", entry.name,
                     " is a tensor of ", entry.tensor.scalar_type(),
                     " over memory for as many fp32 values: torch::load does that with an fp32 "
                     "file, and its numbers are wrong. Call model->to(torch::kFloat) before "
                     "torch::load, then adopt_weights()");
    }
  }
}

void ModelWatch::bring_back() {
  const c10::AutoGradMode no_grad(false);
  for (const Place& place : places_) {
    if (!is_at(place.home, place.parameter)) {
      if (can_follow(place.home, place.parameter)) {
        followers_.push_back({place.parameter, place.parameter.storage()});
      }
      place.parameter.set_data(place.home);
    }
  }
  for (const Follower& follower : followers_) {
    follower.point();
  }
  for (const at::Tensor& kept : kept_fp32_) {
    if (!amp::computes_in_fp32(kept)) {
      amp::compute_in_fp32(kept);
    }
  }
}

}  // namespace lockstep::detail
