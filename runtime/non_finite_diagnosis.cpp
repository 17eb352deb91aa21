#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <lockstep/amp/non_finite_tracer.h>
#include <lockstep/checkpointing/activation/rng_state.h>
#include <lockstep/checkpointing/snapshot/safetensors_writer.h>
#include <lockstep/runtime/gradient_statistics.h>
#include <lockstep/runtime/non_finite_diagnosis.h>
#include <torch/csrc/autograd/autograd.h>

namespace lockstep {
namespace {

using amp::NonFinite;

/// Buffers as they were, whatever a replay did to them.
class KeptBuffers {
 public:
  explicit KeptBuffers(const Model& model) {
    for (const ModelTensor& buffer : model.buffers()) {
      kept_.emplace_back(buffer.tensor, buffer.tensor.clone());
    }
  }
  ~KeptBuffers() {
    const at::NoGradGuard no_grad;
    for (auto& [buffer, value] : kept_) {
      buffer.copy_(value);
    }
  }
  KeptBuffers(const KeptBuffers&) = delete;
  KeptBuffers& operator=(const KeptBuffers&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> kept_;
};

/// What an operator at fault points to, given that it is so at scale 1 too.
std::string verdict(const NonFinite& found) {
  if (found.origin != NonFinite::Origin::op) {
    return "no loss scale can cure it: the data or the weights were not finite before the step";
  }
  const bool half = found.first.dtype == at::kHalf || found.first.dtype == at::kBFloat16;
  const std::string cure =
      half ? c10::str("compute ", found.first.module.empty() ? "that layer" : found.first.module,
                      " in fp32 with Precision::keep_fp32(\"", found.first.module,
                      "\"), or use bf16")
           : "the model has a bug, or the learning rate is too high";
  return c10::str("no loss scale can cure it (at scale 1 ",
                  found.first.backward ? "backward" : "forward", " overflows too): ", cure);
}

constexpr const char* kScaleTooHigh =
    "the loss scale is too high for this batch (at scale 1 all is finite): let it fall, or start "
    "from a smaller init_scale";

}  // namespace

NonFiniteDiagnosis::NonFiniteDiagnosis(Model model, Precision precision, std::string folder)
    : model_(std::move(model)), precision_(std::move(precision)), folder_(std::move(folder)) {}

void NonFiniteDiagnosis::forget() {
  found_.reset();
  replayed_ = false;
}

std::string NonFiniteDiagnosis::gradient_problem(const std::string& name,
                                                 const at::Tensor& gradient, double factor) const {
  if (!gradient.defined() || gradient.layout() != at::kStrided) {
    return {};
  }
  amp::ValueSummary values = amp::summarise(gradient);
  if (!values.finite()) {
    return c10::str("the gradient of parameter ", name, " is not finite (", values.describe(),
                    "), though every operator seen made finite values");
  }
  values.absmax *= factor;
  return values.headroom_bits(precision_.wire_dtype()) < 0
             ? c10::str("the gradient of parameter ", name, ", absmax ", values.absmax,
                        ", is too large for the ", precision_.wire_dtype(), " wire")
             : std::string();
}

NonFiniteDiagnosis::Replay NonFiniteDiagnosis::trace(const std::function<Loss()>& forward,
                                                     double scale, double factor) const {
  const activation::RngGuard same_numbers(activation::RngState::current());
  const KeptBuffers buffers(model_);
  std::vector<at::Tensor> trained;
  std::vector<std::string> names;
  for (const ModelTensor& parameter : model_.parameters()) {
    if (parameter.tensor.requires_grad()) {
      trained.push_back(parameter.tensor);
      names.push_back(parameter.name);
    }
  }
  amp::NonFiniteTracer tracer(model_);
  const at::Tensor loss = forward().tensor().reshape({}).to(at::kFloat) * scale;
  tracer.begin_backward();
  const auto gradients = torch::autograd::grad({loss}, trained, {}, /*retain_graph=*/false,
                                               /*create_graph=*/false, /*allow_unused=*/true);
  Replay result{tracer.first(), {}, tracer.inputs()};
  for (size_t i = 0; i < gradients.size() && result.clean(); ++i) {
    result.gradient = gradient_problem(names[i], gradients[i], factor);
  }
  return result;
}

void NonFiniteDiagnosis::replay(const std::function<Loss()>& forward, double scale, double factor,
                                int64_t micro_batch) {
  replayed_ = true;
  Replay scaled = trace(forward, scale, factor);
  const Replay at_one = trace(forward, 1.0, factor);
  if (found_ || scaled.clean()) {
    return;
  }
  std::string text = scaled.first ? scaled.first->describe() : scaled.gradient;
  text += "\n  ";
  if (at_one.clean()) {
    text += kScaleTooHigh;
  } else if (scaled.first) {
    text += verdict(*scaled.first);
  } else {
    text += "no loss scale can cure it: use a wider wire (Precision::wire(torch::kFloat))";
  }
  found_ = Found{micro_batch, text, std::move(scaled.batch)};
}

void NonFiniteDiagnosis::conclude(const Reducer& reducer, Agreement& agreement, int64_t update,
                                  double scale) {
  Communicator& control = agreement.communicator();
  // A rank that found nothing says whether it looked.
  std::string mine = replayed_ ? "-" : "";
  if (found_) {
    mine = c10::str("rank ", control.rank(), ", micro-batch ", found_->micro_batch, ": ",
                    found_->text, save_batch(control.rank(), update));
  }
  text_ = c10::str("the update after ", update, " was skipped at loss scale ", scale, ". ");
  bool looked = false;
  std::string finds;
  for (const std::string& word : control.all_gather_bytes(mine)) {
    looked = looked || !word.empty();
    if (word.size() > 1) {
      finds += (finds.empty() ? "" : "\n") + word;
    }
  }
  if (!finds.empty()) {
    text_ += finds;
  } else if (looked) {
    text_ += c10::str("Every rank's own gradients are finite: the overflow was born on the ",
                      precision_.wire_dtype(),
                      " wire, in packing or in the all-reduce. Divide before the sum "
                      "(Precision::predivide) or use a wider "
                      "wire (Precision::wire(torch::kFloat)). Not finite after it: ",
                      non_finite_names(reducer));
  } else {
    text_ += c10::str(
        "A loss that is given to backward() cannot be replayed; use step(closure) to "
        "see where it came from. Reduced gradients that are not finite: ",
        non_finite_names(reducer));
  }
  forget();
  armed_ = false;
}

std::string NonFiniteDiagnosis::save_batch(int rank, int64_t update) const {
  if (folder_.empty()) {
    return {};
  }
  const std::string path =
      c10::str(folder_, "/bad_batch.update", update, ".rank", rank, ".safetensors");
  try {
    const auto files = snapshot::FileSystem::real();
    files->make_folder(folder_);
    snapshot::NamedTensors tensors;
    for (size_t i = 0; i < found_->batch.size(); ++i) {
      tensors.emplace_back("input" + std::to_string(i), found_->batch[i].detach());
    }
    snapshot::save_safetensors(path, tensors, {{"format", "pt"}}, files.get());
  } catch (const std::exception& error) {
    return c10::str("\n  the batch could not be saved: ", error.what());
  }
  return "\n  the batch is in " + path;
}

}  // namespace lockstep
