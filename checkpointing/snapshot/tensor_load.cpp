#include <lockstep/checkpointing/snapshot/format/rejection.h>
#include <lockstep/checkpointing/snapshot/impl/tensor_load.h>

#include <c10/core/GradMode.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <unordered_set>

namespace lockstep::snapshot {
namespace {

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

TensorLoad::TensorLoad(const TensorSource& source, const std::vector<Target>& targets,
                       const LoadOptions& options)
    : source_(source) {
  std::set<std::string> used;
  std::vector<std::string> wanted;
  for (const Target& target : targets) {
    const std::string stored =
        options.name_in_source ? options.name_in_source(target.name) : target.name;
    if (!stored.empty()) {
      wanted.push_back(stored);
    }
    const std::string shown =
        stored == target.name ? stored : target.name + " (there " + stored + ")";
    if (!source.has(stored)) {
      report_.missing.push_back(shown);
      continue;
    }
    used.insert(stored);
    if (!target.odd.empty()) {
      report_.misshapen.push_back(c10::str(shown, ": the model's tensor ", target.odd));
      continue;
    }
    std::vector<int64_t> sizes = target.sizes;
    const bool transposed =
        options.transposed && sizes.size() == 2 && options.transposed(target.name);
    if (transposed) {
      std::swap(sizes[0], sizes[1]);
    }
    const std::string why = why_misshapen(source, stored, sizes, target.dtype);
    if (!why.empty()) {
      report_.misshapen.push_back(c10::str(shown, ": ", why, transposed ? " (transposed)" : ""));
      continue;
    }
    places_[target.name] = {stored, transposed};
    report_.loaded.push_back(target.name);
  }
  for (const std::string& name : source.names()) {
    if (used.count(name) == 0) {
      report_.unexpected.push_back(name);
    }
  }
  const auto refuse = [&](const char* why, const char* otherwise) {
    const std::string advice = prefix_advice(source.names(), wanted, used.size(),
                                             static_cast<bool>(options.name_in_source));
    reject(source.path(), why, "; nothing was loaded. ", advice.empty() ? otherwise : advice, "\n",
           report_.text());
  };
  if (options.match == Match::strict && !report_.is_complete()) {
    refuse("does not match", "Load with Match::partial if that is meant.");
  }
  if (report_.loaded.empty() && !wanted.empty()) {
    refuse("has nothing that matches",
           "Load what has these names, or map them with name_in_source.");
  }
  for (const auto& [name, place] : places_) {
    source.read(place.stored);  // checks its digest
  }
}

void TensorLoad::copy(const std::string& name, const at::Tensor& target) const {
  const auto place = places_.find(name);
  if (place == places_.end()) {
    return;
  }
  const c10::AutoGradMode no_grad(false);
  const at::Tensor view = place->second.transposed ? target.detach().t() : target.detach();
  view.copy_(source_.read(place->second.stored));
}

}  // namespace lockstep::snapshot
