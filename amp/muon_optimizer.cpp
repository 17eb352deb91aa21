#include <ATen/ops/addmm.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/GradMode.h>
#include <lockstep/amp/muon_optimizer.h>
#include <lockstep/collectives/check.h>
#include <torch/optim/serialize.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

bool has_name(const ModelTensor& entry, const std::string& name) {
  const auto matches = [&](const std::string& own) {
    return own == name || own.rfind(name + ".", 0) == 0;
  };
  return matches(entry.name) || std::any_of(entry.aliases.begin(), entry.aliases.end(), matches);
}

/// Throws for complex parameters, as torch.optim.Muon does, except for those in `rest_names`.
void require_real(const std::vector<ModelTensor>& parameters,
                  const std::vector<std::string>& rest_names) {
  for (const ModelTensor& entry : parameters) {
    const bool is_rest =
        std::any_of(rest_names.begin(), rest_names.end(),
                    [&](const std::string& name) { return has_name(entry, name); });
    LOCKSTEP_CHECK(!entry.tensor.is_complex() || !entry.tensor.requires_grad() || is_rest,
                   "MuonOptimizer: parameter ", entry.name, " is ", entry.tensor.scalar_type(),
                   ", and Muon is not defined for complex parameters: name it in rest_names, which "
                   "AdamW updates");
  }
}

/// Approximates the nearest orthogonal matrix: singular values of 0.5 to 1.5.
at::Tensor orthogonal(const at::Tensor& matrix, const MuonOptions& options) {
  const auto [a, b, c] = options.ns_coefficients();
  const bool tall = matrix.size(0) > matrix.size(1);
  at::Tensor result = matrix.to(at::kBFloat16);
  if (tall) {
    result = result.t();
  }
  result.div_(result.norm().clamp_min(options.eps()));
  for (int64_t i = 0; i < options.ns_steps(); ++i) {
    const at::Tensor gram = at::matmul(result, result.t());
    const at::Tensor update = at::addmm(gram, gram, gram, /*beta=*/b, /*alpha=*/c);
    result = at::addmm(result, update, result, /*beta=*/a);
  }
  return tall ? result.t() : result;
}

template <typename State>
State& state_of(torch::optim::Optimizer& optimizer, const at::Tensor& parameter) {
  auto& state = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (state == nullptr) {
    state = std::make_unique<State>();
  }
  return static_cast<State&>(*state);
}

std::vector<torch::optim::OptimizerParamGroup> groups(std::vector<at::Tensor> matrices,
                                                      const MuonOptions& options,
                                                      std::vector<at::Tensor> rest,
                                                      const torch::optim::AdamWOptions& others) {
  std::vector<torch::optim::OptimizerParamGroup> result;
  result.emplace_back(std::move(matrices), std::make_unique<MuonOptions>(options));
  result.emplace_back(std::move(rest), std::make_unique<torch::optim::AdamWOptions>(others));
  return result;
}

}  // namespace

TorchOptimizer MuonOptimizer::of(const Model& model, MuonOptions options,
                                 torch::optim::AdamWOptions rest_options,
                                 std::vector<std::string> rest_names) {
  options.validate();
  const std::vector<ModelTensor> all = model.parameters();
  for (const std::string& name : rest_names) {
    LOCKSTEP_CHECK(std::any_of(all.begin(), all.end(),
                               [&](const ModelTensor& entry) { return has_name(entry, name); }),
                   "MuonOptimizer: no parameter is named ", name, " or begins with ", name, ".");
  }
  require_real(all, rest_names);
  const auto is_matrix = [rest_names](const ModelTensor& entry) {
    return entry.tensor.dim() == 2 && !entry.tensor.is_complex() &&
           std::none_of(rest_names.begin(), rest_names.end(),
                        [&](const std::string& name) { return has_name(entry, name); });
  };
  LOCKSTEP_CHECK(std::any_of(all.begin(), all.end(), is_matrix),
                 "MuonOptimizer: no parameter is a matrix; use AdamW");
  return TorchOptimizer(
      [model, options, rest_options, rest_names,
       is_matrix](const std::vector<at::Tensor>& masters) {
        std::vector<ModelTensor> trainable = model.parameters();
        require_real(trainable, rest_names);
        trainable.erase(
            std::remove_if(trainable.begin(), trainable.end(),
                           [](const ModelTensor& entry) { return !entry.tensor.requires_grad(); }),
            trainable.end());
        LOCKSTEP_CHECK(trainable.size() == masters.size(), "MuonOptimizer: the model has ",
                       trainable.size(), " trainable parameters, the Trainer ", masters.size(),
                       "; pass the Trainer's model");
        std::vector<at::Tensor> matrices;
        std::vector<at::Tensor> rest;
        for (size_t i = 0; i < masters.size(); ++i) {
          (is_matrix(trainable[i]) ? matrices : rest).push_back(masters[i]);
        }
        return std::make_unique<MuonOptimizer>(std::move(matrices), options, std::move(rest),
                                               rest_options);
      },
      is_matrix);
}

MuonOptimizer::MuonOptimizer(std::vector<at::Tensor> matrices, MuonOptions options,
                             std::vector<at::Tensor> rest, torch::optim::AdamWOptions rest_options)
    : Optimizer(groups(std::move(matrices), options, std::move(rest), rest_options),
                std::make_unique<MuonOptions>(options)) {
  options.validate();
  LOCKSTEP_CHECK(!rest_options.amsgrad(),
                 "MuonOptimizer: amsgrad is not supported for the rest; use amsgrad(false)");
  for (const at::Tensor& matrix : param_groups().front().params()) {
    LOCKSTEP_CHECK(matrix.dim() == 2 && !matrix.is_complex(),
                   "MuonOptimizer: a parameter of sizes ", matrix.sizes(), " is ",
                   matrix.is_complex() ? "complex" : "no matrix", "; pass it with the rest");
  }
}

bool MuonOptimizer::is_matrix(const at::Tensor& parameter) const {
  const std::vector<at::Tensor>& matrices = param_groups().front().params();
  return std::any_of(matrices.begin(), matrices.end(),
                     [&](const at::Tensor& matrix) { return matrix.is_same(parameter); });
}

at::Tensor MuonOptimizer::step(LossClosure closure) {
  at::Tensor loss;
  if (closure != nullptr) {
    const c10::AutoGradMode with_grad(true);
    loss = closure();
  }
  const c10::AutoGradMode no_grad(false);
  for (size_t g = 0; g < param_groups().size(); ++g) {
    const torch::optim::OptimizerOptions& options = param_groups()[g].options();
    for (const at::Tensor& parameter : param_groups()[g].params()) {
      if (!parameter.grad().defined()) {
        continue;
      }
      if (g == 0) {
        update_matrix(parameter, static_cast<const MuonOptions&>(options));
      } else {
        update_rest(parameter, static_cast<const torch::optim::AdamWOptions&>(options));
      }
    }
  }
  return loss;
}

void MuonOptimizer::update_matrix(const at::Tensor& parameter, const MuonOptions& options) {
  const at::Tensor& gradient = parameter.grad();
  at::Tensor& momentum = state_of<torch::optim::SGDParamState>(*this, parameter).momentum_buffer();
  if (!momentum.defined()) {
    momentum = at::zeros_like(gradient);
  }
  if (parameter.numel() == 0) {
    return;  // another rank has the matrix
  }
  momentum.lerp_(gradient, 1.0 - options.momentum());
  const at::Tensor direction =
      options.nesterov() ? at::lerp(gradient, momentum, options.momentum()) : momentum;
  const at::Tensor update = orthogonal(direction, options);
  parameter.mul_(1.0 - options.lr() * options.weight_decay());
  parameter.add_(update, -options.adjusted_lr(parameter.size(0), parameter.size(1)));
}

void MuonOptimizer::update_rest(const at::Tensor& parameter,
                                const torch::optim::AdamWOptions& options) {
  const at::Tensor& gradient = parameter.grad();
  auto& state = state_of<torch::optim::AdamWParamState>(*this, parameter);
  if (!state.exp_avg().defined()) {
    state.exp_avg(at::zeros_like(parameter));
    state.exp_avg_sq(at::zeros_like(parameter));
  }
  const auto [beta1, beta2] = options.betas();
  state.step(state.step() + 1);
  const auto step = static_cast<double>(state.step());
  parameter.mul_(1.0 - options.lr() * options.weight_decay());
  state.exp_avg().lerp_(gradient, 1.0 - beta1);
  state.exp_avg_sq().mul_(beta2).addcmul_(gradient, gradient, 1.0 - beta2);
  const double step_size = options.lr() / (1.0 - std::pow(beta1, step));
  const double root = std::sqrt(1.0 - std::pow(beta2, step));
  const at::Tensor denominator = (state.exp_avg_sq().sqrt() / root).add_(options.eps());
  parameter.addcdiv_(state.exp_avg(), denominator, -step_size);
}

void MuonOptions::validate() const {
  LOCKSTEP_CHECK(lr_ >= 0.0, "MuonOptions.lr must be >= 0, is ", lr_);
  LOCKSTEP_CHECK(weight_decay_ >= 0.0, "MuonOptions.weight_decay must be >= 0, is ", weight_decay_);
  LOCKSTEP_CHECK(momentum_ >= 0.0, "MuonOptions.momentum must be >= 0, is ", momentum_);
  LOCKSTEP_CHECK(ns_steps_ >= 0 && ns_steps_ < 100,
                 "MuonOptions.ns_steps must be >= 0 and < 100, is ", ns_steps_);
  LOCKSTEP_CHECK(adjust_lr_fn_ == "original" || adjust_lr_fn_ == "match_rms_adamw",
                 "MuonOptions.adjust_lr_fn must be \"original\" or \"match_rms_adamw\", is \"",
                 adjust_lr_fn_, "\"");
}

double MuonOptions::adjusted_lr(int64_t rows, int64_t columns) const {
  const auto a = static_cast<double>(rows);
  const auto b = static_cast<double>(columns);
  return lr_ * (adjust_lr_fn_ == "original" ? std::sqrt(std::max(1.0, a / b))
                                            : 0.2 * std::sqrt(std::max(a, b)));
}

void MuonOptions::serialize(torch::serialize::OutputArchive& archive) const {
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(lr);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(weight_decay);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(momentum);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(nesterov);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(ns_coefficients);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(eps);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(ns_steps);
  _TORCH_OPTIM_SERIALIZE_TORCH_ARG(adjust_lr_fn);
}

void MuonOptions::serialize(torch::serialize::InputArchive& archive) {
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, lr);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, weight_decay);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, momentum);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(bool, nesterov);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(Coefficients, ns_coefficients);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(double, eps);
  _TORCH_OPTIM_DESERIALIZE_TORCH_ARG(int64_t, ns_steps);
  c10::IValue adjust;
  if (archive.try_read("adjust_lr_fn", adjust)) {
    adjust_lr_fn_ = adjust.toStringRef();
  }
}

}  // namespace lockstep
