#include <lockstep/checkpointing/snapshot/format/rejection.h>
#include <lockstep/checkpointing/snapshot/load.h>

#include <c10/core/GradMode.h>

#include <set>

namespace lockstep::snapshot {
namespace {

void append(std::string& text, const char* what, const std::vector<std::string>& names) {
  if (names.empty()) {
    return;
  }
  text += c10::str(text.empty() ? "" : "\n", what, " (", names.size(), "):");
  for (const std::string& name : names) {
    text += "\n  " + name;
  }
}

bool converts(at::ScalarType from, at::ScalarType to) {
  return from == to || (c10::isFloatingType(from) && c10::isFloatingType(to));
}

}  // namespace

std::string why_misshapen(const TensorSource& source, const std::string& name,
                          at::IntArrayRef wanted_sizes, at::ScalarType wanted_dtype) {
  const std::vector<int64_t> sizes = source.sizes(name);
  const at::ScalarType dtype = source.dtype(name);
  if (wanted_sizes != at::IntArrayRef(sizes)) {
    return c10::str("saved with sizes ", at::IntArrayRef(sizes), ", wanted ", wanted_sizes);
  }
  if (!converts(dtype, wanted_dtype)) {
    return c10::str("saved as ", dtype, ", wanted as ", wanted_dtype,
                    ", which would change its values");
  }
  return "";
}

std::string LoadReport::text() const {
  std::string text;
  append(text, "missing", missing);
  append(text, "unexpected", unexpected);
  append(text, "of other sizes or type", misshapen);
  return text;
}

LoadReport load_tensors(const TensorSource& source,
                        const std::vector<std::pair<std::string, at::Tensor>>& targets,
                        const LoadOptions& options) {
  LoadReport report;
  std::vector<std::pair<at::Tensor, std::string>> matches;
  std::set<std::string> used;
  for (const auto& [name, target] : targets) {
    const std::string stored = options.name_in_source ? options.name_in_source(name) : name;
    const std::string shown = stored == name ? name : name + " (there " + stored + ")";
    if (!source.has(stored)) {
      report.missing.push_back(shown);
      continue;
    }
    used.insert(stored);
    const bool transposed = options.transposed && target.dim() == 2 && options.transposed(name);
    const at::Tensor view = transposed ? target.detach().t() : target.detach();
    const std::string why = why_misshapen(source, stored, view.sizes(), view.scalar_type());
    if (!why.empty()) {
      report.misshapen.push_back(shown + ": " + why + (transposed ? " (transposed)" : ""));
      continue;
    }
    matches.emplace_back(view, stored);
    report.loaded.push_back(name);
  }
  for (const std::string& name : source.names()) {
    if (used.count(name) == 0) {
      report.unexpected.push_back(name);
    }
  }
  if (options.match == Match::strict && !report.is_complete()) {
    reject(source.path(),
           "does not match; nothing was loaded. Load with Match::partial if that is "
           "meant.\n",
           report.text());
  }
  std::vector<std::pair<at::Tensor, at::Tensor>> copies;
  for (const auto& [target, stored] : matches) {
    copies.emplace_back(target, source.read(stored));
  }
  const c10::AutoGradMode no_grad(false);
  for (auto& [target, value] : copies) {
    target.copy_(value);
  }
  return report;
}

}  // namespace lockstep::snapshot
