#include "diff/digest_diff.h"

#include <lockstep/collectives/impl/bounded_json.h>

#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>
#include <stdexcept>
#include <utility>
#include <vector>

#include "rank/exit_codes.h"

namespace lockstep::launcher {
namespace {

constexpr int exit_equal = 0;
constexpr int exit_differs = 1;

using Json = nlohmann::json;
using Updates = std::map<int64_t, Json>;

std::string log_of(const std::string& run) {
  struct stat status {};
  const bool is_folder = stat(run.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
  return is_folder ? run + "/digests.jsonl" : run;
}

bool is_line_of_digests(const Json& entry) {
  return entry.is_object() && entry.contains("update") && entry["update"].is_number_integer() &&
         entry.contains("micro_batches") && entry["micro_batches"].is_array() &&
         !entry["micro_batches"].empty();
}

/// Ignores an incomplete last line: the run may still write it, or was killed.
Updates read(const std::string& run) {
  const std::string path = log_of(run);
  std::ifstream file(path);
  if (!file) {
    throw std::runtime_error("cannot read " + path +
                             "; pass the file of TrainerOptions::digest_log, or a folder with a "
                             "digests.jsonl");
  }
  Updates updates;
  int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    Json entry;
    try {
      entry = detail::bounded_json(line);
    } catch (const detail::BadJson& fault) {
      if (file.eof() && fault.position() > 0) {
        break;
      }
      throw std::runtime_error(path + ", line " + std::to_string(number) +
                               ": this is no line of a digest log: " + fault.what());
    }
    if (!is_line_of_digests(entry)) {
      throw std::runtime_error(path + ", line " + std::to_string(number) +
                               ": this is no line of a digest log");
    }
    const auto update = entry["update"].get<int64_t>();
    updates[update] = std::move(entry);
  }
  return updates;
}

std::string loss_text(const std::string& bits) {
  const uint64_t number = std::stoull(bits, nullptr, 16);
  double loss = 0.0;
  std::memcpy(&loss, &number, sizeof(loss));
  std::ostringstream text;
  text.precision(17);
  text << loss;
  return text.str();
}

/// The first difference in the order of a step: random numbers and loss of the first micro-batch,
/// then gradient and weight of the first parameter. Empty if all are equal.
std::string difference(const Json& a, const Json& b) {
  std::string text;
  const Json none = Json::array();
  const Json& ours = a.value("micro_batches", none);
  const Json& theirs = b.value("micro_batches", none);
  if (ours.size() != theirs.size()) {
    text += "  micro-batches: " + std::to_string(ours.size()) + " and " +
            std::to_string(theirs.size()) + "\n";
  }
  for (size_t i = 0; i < std::min(ours.size(), theirs.size()) && text.empty(); ++i) {
    const std::string where = "  micro-batch " + std::to_string(i) + ": ";
    if (ours.at(i).at(1) != theirs.at(i).at(1)) {
      text += where + "the random numbers differ after its forward\n";
    }
    if (ours.at(i).at(0) != theirs.at(i).at(0)) {
      text += where + "the loss is " + loss_text(ours.at(i).at(0).get<std::string>()) + " and " +
              loss_text(theirs.at(i).at(0).get<std::string>()) + "\n";
    }
  }
  const Json& our_parameters = a.value("parameters", none);
  const Json& their_parameters = b.value("parameters", none);
  if (our_parameters.empty() || their_parameters.empty()) {
    return text.empty() ? text : text + "  parameters: not hashed at this update\n";
  }
  for (size_t i = 0; i < our_parameters.size(); ++i) {
    if (i >= their_parameters.size() ||
        our_parameters.at(i).at(0) != their_parameters.at(i).at(0)) {
      return text + "  parameters: others, from " + our_parameters.at(i).at(0).get<std::string>() +
             " on\n";
    }
    const auto& ours_of = our_parameters.at(i).at(2);
    const auto& theirs_of = their_parameters.at(i).at(2);
    const bool known = !ours_of.get<std::string>().empty() && !theirs_of.get<std::string>().empty();
    const bool gradient = known && ours_of != theirs_of;  // unknown with sharded gradients
    const bool weight = our_parameters.at(i).at(1) != their_parameters.at(i).at(1);
    if (gradient || weight) {
      const char* what = gradient && weight ? "gradient and weight"
                         : gradient         ? "gradient"
                                            : "weight";
      return text + "  parameter " + our_parameters.at(i).at(0).get<std::string>() + ": the " +
             what + " differ" + (gradient && weight ? "" : "s") + "\n";
    }
  }
  if (their_parameters.size() > our_parameters.size()) {
    const auto& further = their_parameters.at(our_parameters.size());
    return text + "  parameters: others, from " + further.at(0).get<std::string>() + " on\n";
  }
  return a.value("made", 0) == b.value("made", 0) ? text : text + "  one of them was skipped\n";
}

}  // namespace

int diff_runs(const std::string& a, const std::string& b, std::ostream& out, std::ostream& error) {
  try {
    const Updates ours = read(a);
    const Updates theirs = read(b);
    int64_t compared = 0;
    int64_t hashed = 0;
    for (const auto& [update, entry] : ours) {
      const auto found = theirs.find(update);
      if (found == theirs.end()) {
        continue;
      }
      ++compared;
      if (const std::string text = difference(entry, found->second); !text.empty()) {
        out << "update " << update << " is the first that differs\n" << text;
        return exit_differs;
      }
      hashed += entry.contains("parameters") && found->second.contains("parameters") ? 1 : 0;
    }
    if (compared == 0) {
      error << "lockstep: the logs of " << a << " and " << b << " have no update in common\n";
      return exit_usage;
    }
    out << "equal: " << compared << " updates, of " << ours.size() << " and " << theirs.size();
    if (hashed < compared) {
      out << "; gradients and weights are in both logs for " << hashed << " of them";
    }
    out << "\n";
    return exit_equal;
  } catch (const std::exception& problem) {
    error << "lockstep: " << problem.what() << "\n";
    return exit_usage;
  }
}

}  // namespace lockstep::launcher
