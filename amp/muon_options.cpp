#include <lockstep/amp/muon_options.h>
#include <lockstep/collectives/check.h>
#include <torch/optim/serialize.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <cmath>

namespace lockstep {

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
