#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <lockstep/amp/impl/fixed_point.h>
#include <lockstep/amp/non_finite_tracer.h>
#include <lockstep/checkpointing/activation/impl/rng_state.h>
#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/checkpointing/snapshot/safetensors_writer.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/as_error.h>
#include <lockstep/runtime/step/impl/gradient_statistics.h>
#include <lockstep/runtime/step/impl/non_finite_diagnosis.h>
#include <lockstep/runtime/step/impl/trainable.h>
#include <lockstep/runtime/storage/impl/flat.h>
#include <torch/csrc/autograd/autograd.h>

#include <cmath>
#include <limits>

namespace lockstep::detail {
namespace {

using amp::NonFinite;

/// Restores the buffers that a replay changed.
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

/// The advice for an operator whose result is not finite at scale 1 either.
std::string advice(const NonFinite& found) {
  switch (found.origin) {
    case NonFinite::Origin::parameter:
    case NonFinite::Origin::input:
      return "the data or the weights were not finite before the step";
    case NonFinite::Origin::number:
      return "look where the program computes that number (a division by zero, say)";
    case NonFinite::Origin::op:
      break;
  }
  const bool half = found.first.dtype == at::kHalf || found.first.dtype == at::kBFloat16;
  const std::string cure =
      half ? c10::str("compute ", found.first.module.empty() ? "that layer" : found.first.module,
                      " in fp32 with Precision::keep_fp32(\"", found.first.module,
                      "\"), or use bf16")
           : "the model or the loss has a bug (a division by zero, the logarithm of zero), or the "
             "learning rate is too high";
  return cure;
}

/// A loss scale with which a gradient that has this absmax at `scale` keeps a margin to the limit
/// of reproducible runs, as C++ writes it.
std::string scale_that_fits(double absmax, double scale) {
  constexpr int kMargin = 4;  // bits
  const double fits =
      std::exp2(std::floor(std::log2(scale / absmax * amp::FixedPoint::kLimit)) - kMargin);
  return fits < 1.0 ? c10::str("1.0 / ", static_cast<int64_t>(1.0 / fits)) : c10::str(fits);
}

constexpr const char* kScaleTooHigh =
    "the loss scale is too high for this batch (at scale 1 all is finite): let it fall, or start "
    "from a smaller init_scale";

}  // namespace

NonFiniteDiagnosis::NonFiniteDiagnosis(Model model, Precision precision, const std::string& folder,
                                       bool reproducible)
    : model_(std::move(model)),
      precision_(std::move(precision)),
      folder_(snapshot::absolute_path(folder)),
      reproducible_(reproducible) {}

void NonFiniteDiagnosis::forget() {
  found_.reset();
  replayed_ = false;
}

void NonFiniteDiagnosis::judge_gradient(const std::string& name, const at::Tensor& gradient,
                                        double scale, double factor, Replay& result) const {
  if (!gradient.defined() || gradient.layout() != at::kStrided) {
    return;
  }
  amp::ValueSummary values = amp::summarise(real_view(gradient.resolve_conj()));
  if (!values.finite()) {
    result.fault = Fault::gradient;
    result.text = c10::str("the gradient of parameter ", name, " is not finite (",
                           values.describe(), "), though every operator seen made finite values");
    return;
  }
  if (reproducible_ && values.absmax >= amp::FixedPoint::kLimit) {
    result.fault = Fault::limit;
    result.text = c10::str("the gradient of parameter ", name, " is finite, but its absmax, ",
                           values.absmax, ", loss scale included, is not below ",
                           static_cast<int64_t>(amp::FixedPoint::kLimit),
                           ", the limit of TrainerOptions::reproducible");
    result.cure = scale_that_fits(values.absmax, scale);
    return;
  }
  values.absmax *= factor;
  const c10::ScalarType wire = wire_dtype(ModelTensor{name, {}, gradient}, precision_);
  if (values.headroom_bits(wire) < 0) {
    result.fault = Fault::wire;
    result.text = c10::str("the gradient of parameter ", name, ", absmax ", values.absmax,
                           ", is too large for the ", wire, " wire");
  }
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
  const at::Tensor given = forward().tensor().reshape({});
  const bool wide = given.scalar_type() == at::kDouble;
  const at::Tensor loss = wide ? given : given.to(at::kFloat);
  const bool found_in_forward = tracer.first().has_value();
  const auto value = loss.item<double>();
  const at::Tensor scaled = loss * scale;
  tracer.begin_backward();
  const auto gradients = torch::autograd::grad({scaled}, trained, {}, /*retain_graph=*/false,
                                               /*create_graph=*/false, /*allow_unused=*/true);
  Replay result{Fault::none, tracer.first(), {}, tracer.inputs(), {}};
  const bool scaled_overflows =
      !wide && std::abs(value * scale) > std::numeric_limits<float>::max();
  if (!found_in_forward && !std::isfinite(value)) {
    result.fault = Fault::loss;
    result.text =
        c10::str("the loss is ", value, ", though every operator seen made finite values");
  } else if (!found_in_forward && scaled_overflows) {
    result.fault = Fault::scaled_loss;
    result.text =
        c10::str("the loss, ", value, ", times the loss scale ", scale, " is beyond fp32");
  } else if (result.first) {
    result.fault = Fault::op;
    result.text = result.first->describe();
  }
  for (size_t i = 0; i < gradients.size() && result.fault == Fault::none; ++i) {
    judge_gradient(names[i], gradients[i], scale, factor, result);
  }
  return result;
}

/// The advice for a fault that occurs at scale 1 too.
std::string NonFiniteDiagnosis::verdict(const Replay& replay) const {
  switch (replay.fault) {
    case Fault::op: {
      const bool where = replay.first->origin == NonFinite::Origin::op;
      return c10::str(
          "no loss scale can cure it",
          where ? c10::str(" (at scale 1 ", replay.first->first.backward ? "backward" : "forward",
                           " overflows too)")
                : std::string(),
          ": ", advice(*replay.first));
    }
    case Fault::limit:
      return c10::str(
          "make the loss smaller (a mean in place of a sum, targets of unit size), or "
          "use Precision::loss_scale(amp::LossScalerOptions::fixed(",
          replay.cure, "))");
    case Fault::wire:
      return precision_.wire_dtype() == at::kFloat
                 ? "no loss scale can cure it: make the loss smaller"
                 : "no loss scale can cure it: use a wider wire (Precision::wire(torch::kFloat))";
    default:
      return "no loss scale can cure it: look for a value that no operator makes: a custom "
             "autograd "
             "function, a hook, memory written by hand";
  }
}

void NonFiniteDiagnosis::replay(const std::function<Loss()>& forward, double scale, double factor,
                                int64_t micro_batch) {
  replayed_ = true;
  Replay scaled = trace(forward, scale, factor);
  const Replay at_one = trace(forward, 1.0, factor);
  if (found_ || scaled.fault == Fault::none) {
    return;
  }
  const std::string text =
      scaled.text + "\n  " + (at_one.fault == Fault::none ? kScaleTooHigh : verdict(scaled));
  found_ = Found{micro_batch, text, std::move(scaled.batch)};
}

std::string NonFiniteDiagnosis::not_finite_in_model() const {
  std::string names;
  const auto look = [&](const std::vector<ModelTensor>& tensors) {
    for (const ModelTensor& entry : tensors) {
      const bool has_range = entry.tensor.is_floating_point() || entry.tensor.is_complex();
      const bool is_tiny =
          has_range && entry.tensor.element_size() == 1;  // LibTorch lacks isfinite
      if (has_range &&
          !at::isfinite(is_tiny ? entry.tensor.to(at::kFloat) : entry.tensor).all().item<bool>()) {
        names += (names.empty() ? "" : ", ") + entry.name;
      }
    }
  };
  look(model_.parameters());
  look(model_.buffers());
  return names;
}

std::string NonFiniteDiagnosis::of_first_loss(const std::function<void()>& replay, int rank) {
  std::string failure;
  try {
    replay();
  } catch (const CommunicationError&) {
    throw;
  } catch (...) {
    failure = c10::str("; its replay failed: ", as_error(std::current_exception()).what());
  }
  std::string text;
  if (found_) {
    text = c10::str("micro-batch ", found_->micro_batch, ": ", found_->text, save_batch(rank, 0));
  } else if (const std::string names = not_finite_in_model(); !names.empty()) {
    text = "no loss scale can cure it: not finite in the model before the forward: " + names;
  } else if (replayed_) {
    text =
        "the micro-batch at hand was run again, with a finite loss, and so are the weights: look "
        "at "
        "the batches before it";
  } else {
    text =
        "the weights are finite, so it comes from the batch or from the forward. A loss that is "
        "given to backward() cannot be replayed; use step(closure) to see where it came from, or "
        "let an amp::NonFiniteTracer watch the forward";
  }
  forget();
  armed_ = false;
  return text + failure;
}

void NonFiniteDiagnosis::conclude_window(const DecisionCopy& copy, const Reducer& reducer,
                                         const Agreement& agreement) {
  if (!armed_) {
    return;
  }
  const amp::Decision& decision = copy.read();
  if (decision.skipped && !(decision.failed > 0)) {
    conclude(reducer, agreement, decision.updates, decision.scale);
  } else {
    forget();
  }
}

void NonFiniteDiagnosis::conclude(const Reducer& reducer, const Agreement& agreement,
                                  int64_t update, double scale) {
  const Communicator& control = agreement.communicator();
  // A rank that found nothing sends "-" if it replayed.
  std::string mine = replayed_ ? "-" : "";
  if (found_) {
    mine = c10::str("rank ", control.rank(), ", micro-batch ", found_->micro_batch, ": ",
                    found_->text, save_batch(control.rank(), update));
  }
  text_ = c10::str("the update after ", update, " was skipped at loss scale ", scale, ". ");
  ranks_.clear();
  bool looked = false;
  std::string finds;
  int rank = 0;
  for (const std::string& word : control.all_gather_bytes(mine)) {
    looked = looked || !word.empty();
    if (word.size() > 1) {
      finds += (finds.empty() ? "" : "\n") + word;
      ranks_.push_back(rank);
    }
    ++rank;
  }
  if (!finds.empty()) {
    text_ += finds;
  } else if (looked) {
    const bool half = precision_.wire_dtype() != at::kFloat;
    text_ += c10::str("Every rank's own gradients are finite: the overflow was born on the ",
                      precision_.wire_dtype(), " wire, in packing or in the all-reduce. ",
                      half ? "Divide before the sum (Precision::predivide) or use a wider wire "
                             "(Precision::wire(torch::kFloat))"
                           : "Make the loss smaller",
                      ". Not finite after it: ", non_finite_names(reducer, control));
  } else {
    text_ += c10::str(
        "A loss that is given to backward() cannot be replayed; use step(closure) to "
        "see where it came from. Reduced gradients that are not finite: ",
        non_finite_names(reducer, control));
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
    snapshot::FileSystem::current()->make_folder(folder_);
    snapshot::NamedTensors tensors;
    for (size_t i = 0; i < found_->batch.size(); ++i) {
      tensors.emplace_back("input" + std::to_string(i), found_->batch[i].detach());
    }
    snapshot::save_safetensors(path, tensors);
  } catch (const std::exception& error) {
    return c10::str("\n  the batch could not be saved: ", error.what());
  }
  return "\n  the batch is in " + path;
}

}  // namespace lockstep::detail
