#include <c10/util/StringUtil.h>
#include <lockstep/runtime/trainer/own/stored_dtypes.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace lockstep::detail {
namespace {

bool has_16_bits(const ModelTensor& entry) {
  const c10::ScalarType dtype = entry.tensor.scalar_type();
  return dtype == c10::ScalarType::Half || dtype == c10::ScalarType::BFloat16;
}

/// "3 buffers (a, b, ...)"; empty for none.
std::string counted(const std::vector<ModelTensor>& entries, const char* one, const char* several,
                    const std::string& why, const std::function<bool(const ModelTensor&)>& counts) {
  constexpr int64_t kShown = 2;
  int64_t count = 0;
  std::string names;
  for (const ModelTensor& entry : entries) {
    if (has_16_bits(entry) && counts(entry)) {
      if (count < kShown) {
        names += (names.empty() ? "" : ", ") + entry.name;
      }
      ++count;
    }
  }
  return count == 0 ? std::string()
                    : c10::str(count, " ", count == 1 ? one : several, " (", names,
                               count > kShown ? ", ..." : "", "), ", why);
}

std::string line_of_16_bits(const Model& model, const Precision& precision,
                            const ExactValues& exact) {
  const auto is_trained = [](const ModelTensor& e) { return e.tensor.requires_grad(); };
  const auto is_lowered = [&](const ModelTensor& e) { return exact.is_lowered(e.tensor); };
  const char* const masters = precision.has_masters()      ? "with fp32 masters"
                              : precision.has_remainders() ? "with remainders as masters"
                                                           : "without masters";
  std::string line;
  for (const std::string& part :
       {counted(model.parameters(), "trained parameter", "trained parameters", masters, is_trained),
        counted(model.parameters(), "frozen parameter", "frozen parameters",
                "lowered: not to be written",
                [&](const ModelTensor& e) { return !is_trained(e) && is_lowered(e); }),
        counted(model.parameters(), "frozen parameter", "frozen parameters", "as given",
                [&](const ModelTensor& e) { return !is_trained(e) && !is_lowered(e); }),
        counted(model.buffers(), "buffer", "buffers", "as the norms' weights", is_lowered),
        counted(model.buffers(), "buffer", "buffers", "as given",
                [&](const ModelTensor& e) { return !is_lowered(e); })}) {
    line += part.empty() ? "" : (line.empty() ? "16 bits    " : "; ") + part;
  }
  return line.empty() ? line : line + "\n";
}

std::string line_of_norms(const Model& model) {
  std::map<std::string, int64_t> count;  // by class
  for (const ModelTensor& entry : model.parameters()) {
    if (entry.in_norm) {
      ++count[entry.owners.empty() ? std::string() : entry.owners.front()];
    }
  }
  std::string line;
  for (const auto& [owner, parameters] : count) {
    line += c10::str(
        line.empty() ? "" : ", ", parameters,
        line.empty() ? (parameters == 1 ? " parameter of " : " parameters of ") : " of ", owner);
  }
  return c10::str("norms      ", line.empty() ? "none" : line, "\n");
}

}  // namespace

std::string stored_dtypes(const Model& model, const Precision& precision,
                          const ExactValues& exact) {
  return line_of_16_bits(model, precision, exact) + line_of_norms(model);
}

}  // namespace lockstep::detail
