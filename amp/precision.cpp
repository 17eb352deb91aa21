#include <ATen/cpu/Utils.h>
#include <c10/util/StringUtil.h>
#include <lockstep/amp/impl/compute_speed.h>
#include <lockstep/amp/impl/cuda_kernels.h>
#include <lockstep/amp/impl/precision_options.h>
#include <lockstep/amp/model.h>
#include <lockstep/amp/precision.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/nearest_names.h>

#include <algorithm>
#include <set>
#include <utility>

namespace lockstep {

namespace {

using c10::ScalarType;
using detail::text_of;

bool is_half(ScalarType dtype) {
  return dtype == ScalarType::Half || dtype == ScalarType::BFloat16;
}

/// "wo" is a dotted part of "block.0.wo.weight", and so is "0.wo".
bool has_part(const std::string& name, const std::string& part) {
  return ("." + name + ".").find("." + part + ".") != std::string::npos;
}

/// One of `patterns` is a dotted part of one of the tensor's names.
bool is_named(const ModelTensor& tensor, const std::vector<std::string>& patterns) {
  return std::any_of(patterns.begin(), patterns.end(), [&](const std::string& pattern) {
    return has_part(tensor.name, pattern) ||
           std::any_of(tensor.aliases.begin(), tensor.aliases.end(),
                       [&](const std::string& alias) { return has_part(alias, pattern); });
  });
}

void require_pattern(const char* option, const std::string& pattern) {
  LOCKSTEP_CHECK(!pattern.empty() && pattern.front() != '.' && pattern.back() != '.',
                 "Precision: ", option, " pattern '", pattern,
                 "' names no part of a dotted name; give a part such as \"wo\" or \"0.wo\"");
}

bool cpu_has(const char* feature) {
  const auto capabilities = at::cpu::get_cpu_capabilities();
  const auto found = capabilities.find(feature);
  return found != capabilities.end() && found->second.isBool() && found->second.toBool();
}

Precision automatic_cpu() {
  const auto dtype = amp::fast_16_bit_dtype(
      cpu_has("amx_bf16") || cpu_has("avx512_bf16"), cpu_has("amx_fp16") || cpu_has("avx512_fp16"),
      [](c10::ScalarType type) { return amp::compute_speed(type).slowdown(); });
  return dtype ? Precision::O1(*dtype) : Precision::O0().wire(c10::kHalf);
}

/// Tensor cores compute in fp16 from capability 7.0 on, in bf16 from 8.0 on.
Precision automatic_cuda(int capability) {
  if (capability >= 80) {
    return Precision::O1(c10::kBFloat16);
  }
  return capability >= 70 ? Precision::O1(c10::kHalf) : Precision::O0().wire(c10::kHalf);
}

template <typename Field, typename Value>
Precision with(Precision changed, Field Precision::*field, const Value& value) {
  changed.*field = value;
  return changed;
}

}  // namespace

template <>
std::string detail::text_of(const ScalarType& dtype) {
  return dtype == ScalarType::Half       ? "fp16"
         : dtype == ScalarType::BFloat16 ? "bf16"
         : dtype == ScalarType::Float    ? "fp32"
                                         : c10::toString(dtype);
}

Precision Precision::O0() {
  return {Level::O0, ScalarType::Float};
}
Precision Precision::O1(ScalarType compute) {
  return {Level::O1, compute};
}
Precision Precision::O2(ScalarType compute) {
  return {Level::O2, compute};
}
Precision Precision::O3(ScalarType compute) {
  return {Level::O3, compute};
}

Precision Precision::automatic(c10::Device device) {
  LOCKSTEP_CHECK(device.is_cpu() || device.is_cuda(), "Precision::automatic: device ", device.str(),
                 " is neither a CPU nor a CUDA device");
  return device.is_cpu() ? automatic_cpu() : automatic_cuda(amp::cuda_capability(device));
}

Precision Precision::wire(ScalarType dtype) const {
  return with(*this, &Precision::wire_, dtype);
}
Precision Precision::keep_batchnorm_fp32(bool keep) const {
  return with(*this, &Precision::keep_norms_, keep);
}
Precision Precision::loss_scale(amp::LossScalerOptions options) const {
  return with(*this, &Precision::loss_scale_, options);
}
Precision Precision::predivide(double factor) const {
  return with(*this, &Precision::predivide_, factor);
}
Precision Precision::remainders(bool on) const {
  return with(*this, &Precision::remainders_, on);
}
Precision Precision::stochastic_rounding(bool on) const {
  return with(*this, &Precision::stochastic_rounding_, on);
}

Precision Precision::keep_fp32(std::string pattern) const {
  Precision changed = *this;
  changed.keep_fp32_.push_back(std::move(pattern));
  return changed;
}

Precision Precision::norms(std::string name) const {
  Precision changed = *this;
  changed.norms_.push_back(std::move(name));
  return changed;
}

ScalarType Precision::wire_dtype() const {
  return wire_.value_or(level_ == Level::O0 ? ScalarType::Float : compute_);
}

amp::LossScalerOptions Precision::loss_scaler_options() const {
  if (loss_scale_) {
    return *loss_scale_;
  }
  const bool fp16 = compute_ == ScalarType::Half || wire_dtype() == ScalarType::Half;
  const bool dynamic = fp16 && level_ != Level::O3;
  return dynamic ? amp::LossScalerOptions::torch() : amp::LossScalerOptions::fixed(1.0);
}

bool Precision::keeps_norms_fp32() const {
  return keep_norms_.value_or(level_ != Level::O3);
}

ScalarType Precision::storage_dtype(const ModelTensor& parameter) const {
  const ScalarType own = parameter.tensor.scalar_type();
  if (own != ScalarType::Float && !is_half(own)) {
    return own;
  }
  const bool wide = level_ == Level::O0 || level_ == Level::O1 ||
                    (parameter.in_norm && keeps_norms_fp32()) || keeps_fp32(parameter);
  return wide ? ScalarType::Float : compute_;
}

/// Norms compute with their weights and their statistics in one dtype.
ScalarType Precision::buffer_dtype(const ModelTensor& buffer) const {
  const bool follows_weights = buffer.in_norm && (has_part(buffer.name, "running_mean") ||
                                                  has_part(buffer.name, "running_var"));
  return follows_weights ? storage_dtype(buffer) : buffer.tensor.scalar_type();
}

bool Precision::keeps_fp32(const ModelTensor& tensor) const {
  return is_named(tensor, keep_fp32_);
}

bool Precision::names_norm(const ModelTensor& tensor) const {
  return is_named(tensor, norms_) ||
         std::any_of(tensor.owners.begin(), tensor.owners.end(), [&](const std::string& owner) {
           return std::find(norms_.begin(), norms_.end(), owner) != norms_.end();
         });
}

Model Precision::with_norms(Model model) const {
  model.add_norms([this](const ModelTensor& tensor) { return names_norm(tensor); });
  return model;
}

std::string Precision::describe() const {
  const std::string half = text_of(compute_);
  const std::string norms = keeps_norms_fp32() ? "fp32 norms" : half + " norms";
  std::string model;
  switch (level_) {
    case Level::O0:
      model = "fp32 model";
      break;
    case Level::O1:
      model = "fp32 model, " + half + " autocast";
      break;
    case Level::O2:
      model = half + " model, " +
              (keeps_norms_fp32() ? "fp32 norms and masters" : norms + ", fp32 masters");
      break;
    case Level::O3:
      model = half + " model, " + norms + ", no masters";
      break;
  }
  return c10::str(text_of(level_), " (", model, ", ", text_of(wire_dtype()), " wire",
                  remainders_ ? ", remainders for masters" : "",
                  stochastic_rounding_ ? ", stochastic rounding" : "", ")");
}

std::vector<std::pair<std::string, std::string>> Precision::fields() const {
  return detail::fields_of(*this);
}

void Precision::validate() const {
  const std::string level = text_of(level_);
  LOCKSTEP_CHECK(level_ == Level::O0 || is_half(compute_), "Precision::", level, ": compute dtype ",
                 compute_, " is not a 16-bit floating type: use Half or BFloat16, or O0 for fp32");
  LOCKSTEP_CHECK(is_half(wire_dtype()) || wire_dtype() == ScalarType::Float,
                 "Precision: wire dtype ", wire_dtype(),
                 " cannot carry gradients: use Float, Half or BFloat16");
  LOCKSTEP_CHECK(level_ == Level::O2 || level_ == Level::O3 || keep_norms_.value_or(true),
                 "Precision: keep_batchnorm_fp32(false) is impossible at ", level,
                 ": its model is fp32 throughout, so there is nothing to convert; use O2 or O3");
  for (const std::string& pattern : keep_fp32_) {
    require_pattern("keep_fp32", pattern);
  }
  for (const std::string& pattern : norms_) {
    require_pattern("norms", pattern);
  }
  const bool brain = compute_ == ScalarType::BFloat16;
  LOCKSTEP_CHECK(!remainders_ || (level_ == Level::O2 && brain),
                 "Precision: remainders(true) is impossible at ", level, " with ",
                 text_of(compute_), ": a 16-bit rest makes a bf16 weight an fp32 master, not ",
                 "an fp16 one, and only O2 has masters; use O2(kBFloat16)");
  LOCKSTEP_CHECK(!stochastic_rounding_ || (level_ == Level::O3 && brain),
                 "Precision: stochastic_rounding(true) is impossible at ", level, " with ",
                 text_of(compute_),
                 ": it is for bf16 weights without masters; use "
                 "O3(kBFloat16), which alone has them");
  detail::require_ranges(detail::rows_of(*this));
  loss_scaler_options().validate();
}

namespace {

/// The runs of `count` dotted parts in a name.
void add_runs(std::set<std::string>& runs, const std::string& name, int64_t count) {
  std::vector<size_t> begins = {0};
  for (size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '.') {
      begins.push_back(i + 1);
    }
  }
  begins.push_back(name.size() + 1);
  for (size_t i = 0; i + static_cast<size_t>(count) < begins.size(); ++i) {
    runs.insert(name.substr(begins[i], begins[i + static_cast<size_t>(count)] - 1 - begins[i]));
  }
}

}  // namespace

void Precision::require_known_names(const Model& model) const {
  const auto require = [&](const char* option, const std::string& pattern, bool counts_classes) {
    const int64_t parts = 1 + std::count(pattern.begin(), pattern.end(), '.');
    std::set<std::string> runs;
    for (const auto* tensors : {&model.parameters(), &model.buffers()}) {
      for (const ModelTensor& entry : *tensors) {
        add_runs(runs, entry.name, parts);
        for (const std::string& alias : entry.aliases) {
          add_runs(runs, alias, parts);
        }
        if (counts_classes) {
          runs.insert(entry.owners.begin(), entry.owners.end());
        }
      }
    }
    LOCKSTEP_CHECK(runs.count(pattern) != 0, "Precision: ", option, "(\"", pattern,
                   "\") names no parameter and no buffer of the model",
                   counts_classes ? ", nor the class of their modules" : "",
                   "; the nearest names are ",
                   detail::nearest_names(pattern, {runs.begin(), runs.end()}));
  };
  for (const std::string& pattern : keep_fp32_) {
    require("keep_fp32", pattern, false);
  }
  for (const std::string& name : norms_) {
    require("norms", name, true);
  }
}

}  // namespace lockstep
