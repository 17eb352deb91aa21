#include <lockstep/amp/model.h>
#include <lockstep/amp/optimizers.h>

namespace lockstep {

namespace {

/// "bias", "bias_hh_l0", "in_proj_bias": the last part of the name speaks of a bias.
bool names_bias(const std::string& name) {
  const std::string last = name.substr(name.rfind('.') + 1);
  return last.rfind("bias", 0) == 0 ||
         (last.size() > 5 && last.compare(last.size() - 5, 5, "_bias") == 0);
}

}  // namespace

bool is_norm_or_bias(const ModelTensor& parameter) {
  return parameter.in_norm || names_bias(parameter.name);
}

}  // namespace lockstep
