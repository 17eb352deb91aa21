// Patterns of keep_fp32 that name nothing of a model.
#include <lockstep/amp/model.h>
#include <lockstep/amp/precision.h>
#include <lockstep/collectives/error.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

namespace lockstep {
namespace {

/// Levenshtein's distance.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

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

std::string nearest(const std::string& pattern, const std::set<std::string>& runs) {
  std::vector<std::pair<size_t, std::string>> ranked;
  for (const std::string& run : runs) {
    ranked.emplace_back(distance(pattern, run), run);
  }
  std::sort(ranked.begin(), ranked.end());
  std::string text;
  for (size_t i = 0; i < std::min<size_t>(ranked.size(), 3); ++i) {
    text += c10::str(i == 0 ? "" : ", ", '"', ranked[i].second, '"');
  }
  return text;
}

}  // namespace

void Precision::require_known_names(const Model& model) const {
  for (const std::string& pattern : keep_fp32_) {
    const int64_t parts = 1 + std::count(pattern.begin(), pattern.end(), '.');
    std::set<std::string> runs;
    for (const auto* tensors : {&model.parameters(), &model.buffers()}) {
      for (const ModelTensor& entry : *tensors) {
        add_runs(runs, entry.name, parts);
        for (const std::string& alias : entry.aliases) {
          add_runs(runs, alias, parts);
        }
      }
    }
    LOCKSTEP_CHECK(runs.count(pattern) != 0, "Precision: keep_fp32(\"", pattern,
                   "\") names no parameter and no buffer of the model; the nearest names are ",
                   nearest(pattern, runs));
  }
}

}  // namespace lockstep
