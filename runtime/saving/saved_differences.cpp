#include <lockstep/runtime/saving/own/saved_differences.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <vector>

namespace lockstep::detail {

std::string other_ties(const Snapshot& saved, const Trainable& trainable) {
  const auto found = saved.manifest().tied.find("model");
  const std::map<std::string, std::string> tied =
      found != saved.manifest().tied.end() ? found->second : std::map<std::string, std::string>();
  const auto stored = [&](const std::string& name) {
    const auto other = tied.find(name);
    return other != tied.end() ? other->second : name;
  };
  std::string lines;
  std::map<std::string, std::string> here;  // each name, and that of its weight
  for (const auto* entries : {&trainable.parameters, &trainable.frozen}) {
    for (const ModelTensor& entry : *entries) {
      here[entry.name] = entry.name;
      for (const std::string& alias : entry.aliases) {
        here[alias] = entry.name;
        if (stored(alias) != stored(entry.name)) {
          lines += c10::str("\n", alias, " and ", entry.name, ": one weight here, two there");
        }
      }
    }
  }
  for (const auto& [name, other] : tied) {
    if (here.count(name) != 0 && here.count(other) != 0 && here[name] != here[other]) {
      lines += c10::str("\n", name, " and ", other, ": one weight there, two here");
    }
  }
  return lines;
}

std::string items_without(const std::string& list, const std::string& other) {
  const auto items = [](std::string text) {
    std::replace(text.begin(), text.end(), ';', ',');
    std::vector<std::string> found;
    std::istringstream parts(text);
    for (std::string part; std::getline(parts, part, ',');) {
      found.push_back(part.substr(part.find_first_not_of(' ') == 1 ? 1 : 0));
    }
    return found;
  };
  const std::vector<std::string> known = items(other);
  std::string text;
  for (const std::string& item : items(list)) {
    if (std::find(known.begin(), known.end(), item) == known.end()) {
      text += (text.empty() ? "" : ", ") + item;
    }
  }
  return text.empty() ? "without" : text;
}

}  // namespace lockstep::detail
