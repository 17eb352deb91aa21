#include <lockstep/checkpointing/snapshot/format/rejection.h>
#include <lockstep/checkpointing/snapshot/load.h>
#include <lockstep/collectives/impl/plain_tensor.h>

#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <unordered_set>

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

/// The text that most of `names` have in front of one of `plain`, and how many have it.
struct Prefix {
  std::string text;
  size_t count = 0;
};

Prefix common_prefix(const std::vector<std::string>& names,
                     const std::unordered_set<std::string_view>& plain) {
  constexpr size_t kLongest = 512;  // names that are longer are no names of a model
  std::map<std::string_view, size_t> counts;
  Prefix most;
  for (const std::string& name : names) {
    for (size_t begin = 1; begin < name.size() && name.size() <= kLongest; ++begin) {
      const std::string_view whole = name;
      if (plain.count(whole.substr(begin)) > 0) {
        const size_t count = ++counts[whole.substr(0, begin)];
        if (count > most.count) {
          most = {name.substr(0, begin), count};
        }
      }
    }
  }
  return most;
}

std::string quoted(const std::string& text) {
  std::string quoted = "\"";
  for (const char letter : text) {
    quoted += letter == '"' || letter == '\\' ? std::string("\\") + letter : std::string(1, letter);
  }
  return quoted + "\"";
}

/// If names of one side are those of the other behind a prefix: what to do; else empty.
/// `matched`: as many names are on both sides as they are.
std::string prefix_advice(const std::vector<std::string>& in_source,
                          const std::vector<std::string>& wanted, size_t matched, bool has_names) {
  const std::unordered_set<std::string_view> plain_source(in_source.begin(), in_source.end());
  const std::unordered_set<std::string_view> plain_wanted(wanted.begin(), wanted.end());
  const Prefix of_source = common_prefix(in_source, plain_wanted);
  const Prefix of_wanted = common_prefix(wanted, plain_source);
  const bool is_of_source = of_source.count >= of_wanted.count;
  const Prefix& prefix = is_of_source ? of_source : of_wanted;
  if (prefix.count <= matched ||
      2 * prefix.count <= std::min(plain_source.size(), plain_wanted.size())) {
    return "";
  }
  const std::string text = quoted(prefix.text);
  if (has_names) {
    return c10::str(prefix.count, " of the names that LoadOptions::name_in_source returns ",
                    is_of_source ? "lack" : "have", " the prefix ", text,
                    is_of_source ? ", which they have there" : ", which they do not have there");
  }
  const std::string code = is_of_source ? text + " + name;"
                                        : c10::str("name.rfind(", text, ", 0) == 0 ? name.substr(",
                                                   prefix.text.size(), ") : name;");
  return c10::str(prefix.count, " names match if the prefix ", text, " of the ",
                  is_of_source ? "source" : "model",
                  " is left out: options.name_in_source = [](const std::string& name) { return ",
                  code, " };");
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
  std::vector<std::string> wanted;
  for (const auto& [name, target] : targets) {
    const std::string stored = options.name_in_source ? options.name_in_source(name) : name;
    if (!stored.empty()) {
      wanted.push_back(stored);
    }
    const std::string shown = stored == name ? name : name + " (there " + stored + ")";
    if (!source.has(stored)) {
      report.missing.push_back(shown);
      continue;
    }
    used.insert(stored);
    if (const std::string odd = detail::why_not_plain(target); !odd.empty()) {
      report.misshapen.push_back(c10::str(shown, ": the model's tensor ", odd));
      continue;
    }
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
  const auto refuse = [&](const char* why, const char* otherwise) {
    const std::string advice = prefix_advice(source.names(), wanted, used.size(),
                                             static_cast<bool>(options.name_in_source));
    reject(source.path(), why, "; nothing was loaded. ", advice.empty() ? otherwise : advice, "\n",
           report.text());
  };
  if (options.match == Match::strict && !report.is_complete()) {
    refuse("does not match", "Load with Match::partial if that is meant.");
  }
  if (report.loaded.empty() && !wanted.empty()) {
    refuse("has nothing that matches",
           "Load what has these names, or map them with name_in_source.");
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
