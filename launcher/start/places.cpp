#include "start/places.h"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>

#include "machine/allocation.h"
#include "machine/machine.h"
#include "rank/child_process.h"

namespace lockstep::launcher {
namespace {

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string text_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

void add(std::vector<Place>& places, const std::string& name, int slots) {
  if (name.empty()) {
    return;
  }
  const auto known = std::find_if(places.begin(), places.end(),
                                  [&](const Place& place) { return place.name == name; });
  if (known == places.end()) {
    places.push_back({name, slots});
  } else {
    known->slots += slots;
  }
}

/// Parses "b:2": the host and its slots; default: 1.
void add_host(std::vector<Place>& places, const std::string& text) {
  const size_t colon = text.rfind(':');
  const int slots = colon == std::string::npos ? 1 : std::atoi(text.c_str() + colon + 1);
  add(places, text.substr(0, colon), std::max(slots, 1));
}

std::vector<Place> slurms_places() {
  const std::string names = text_in("SLURM_JOB_NODELIST");
  if (names.empty() || find_program("scontrol").empty()) {
    return {};
  }
  // slurmctld may not answer.
  const std::string output =
      output_of({"scontrol", "show", "hostnames", names}, std::chrono::seconds(10));
  const std::vector<int> counts = counts_in(text_in("SLURM_TASKS_PER_NODE"));
  std::vector<Place> places;
  std::istringstream lines(output);
  for (std::string name; lines >> name;) {
    add(places, name, places.size() < counts.size() ? counts[places.size()] : 1);
  }
  return places;
}

}  // namespace

std::vector<Place> places_in_list(const std::string& text) {
  std::vector<Place> places;
  std::istringstream hosts(text);
  for (std::string host; std::getline(hosts, host, ',');) {
    add_host(places, host);
  }
  return places;
}

std::vector<Place> places_in_file(const std::string& text) {
  std::vector<Place> places;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line.substr(0, line.find('#')));
    std::string host;
    if (!(words >> host)) {
      continue;
    }
    int slots = 0;
    for (std::string word; words >> word;) {
      if (std::sscanf(word.c_str(), "slots=%d", &slots) == 1) {
        break;
      }
    }
    if (slots > 0) {
      add(places, host, slots);
    } else {
      add_host(places, host);
    }
  }
  return places;
}

std::string list_of(const std::vector<Place>& places) {
  std::string text;
  for (const Place& place : places) {
    text += (text.empty() ? "" : ",") + place.name + ":" + std::to_string(place.slots);
  }
  return text;
}

std::vector<int> counts_in(const std::string& text) {
  std::vector<int> counts;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    int count = 0;
    int times = 1;
    std::sscanf(part.c_str(), "%d(x%d)", &count, &times);
    counts.insert(counts.end(), static_cast<size_t>(std::max(times, 0)), count);
  }
  return counts;
}

std::vector<Place> allocated_places() {
  const auto allocation = find_allocation();
  if (!allocation || allocation->hosts < 2) {
    return {};
  }
  if (!text_in("SLURM_JOB_ID").empty()) {
    return slurms_places();
  }
  if (const std::string file = text_in("PBS_NODEFILE"); !file.empty()) {
    return places_in_file(content_of(file));
  }
  std::vector<Place> places;
  std::istringstream words(text_in("LSB_MCPU_HOSTS"));
  std::string host;
  for (int slots = 0; words >> host >> slots;) {
    add(places, host, slots);
  }
  return places;
}

std::vector<Place> places_of(const RunOptions& options, int ranks,
                             const std::vector<Place>& allocated) {
  if (!options.hosts.empty()) {
    return places_in_list(options.hosts);
  }
  if (!options.hostfile.empty()) {
    return places_in_file(content_of(options.hostfile));
  }
  return !allocated.empty() ? allocated : std::vector<Place>(static_cast<size_t>(ranks));
}

}  // namespace lockstep::launcher
