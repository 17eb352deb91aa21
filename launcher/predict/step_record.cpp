#include "predict/step_record.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

namespace lockstep::launcher {
namespace {

using Json = nlohmann::json;

constexpr const char* kBucket = "launch bucket ";
constexpr double kMostElementBytes = 16;
constexpr double kMostBucketBytes = 1e12;
constexpr double kMostMilliseconds = 1e9;
constexpr double kMostAccumulate = 1e6;

struct Update {
  std::vector<Json> forwards, backwards, buckets;
  double seconds = 0.0;
  double compute() const {
    double sum = seconds;
    for (const auto* spans : {&forwards, &backwards}) {
      for (const Json& span : *spans) {
        sum += span["dur"].get<double>() * 1e-6;
      }
    }
    return sum;
  }
};

bool is_span_of_the_step(const Json& event) {
  return event.is_object() && event.value("ph", "") == "X" && event.value("tid", -1) == 0 &&
         event.contains("ts") && event.contains("dur") && event.contains("name");
}

/// The complete updates of a rank, from its spans in order of their start.
std::vector<Update> updates_of(std::vector<Json> spans) {
  std::sort(spans.begin(), spans.end(),
            [](const Json& a, const Json& b) { return a["ts"] < b["ts"]; });
  std::vector<Update> updates;
  Update open;
  for (const Json& span : spans) {
    const auto name = span["name"].get<std::string>();
    if (name == "forward") {
      open.forwards.push_back(span);
    } else if (name == "backward") {
      open.backwards.push_back(span);
    } else if (name.rfind(kBucket, 0) == 0) {
      open.buckets.push_back(span);
    } else if (name == "update") {
      open.seconds += span["dur"].get<double>() * 1e-6;
      if (!open.forwards.empty() && open.forwards.size() == open.backwards.size() &&
          !open.buckets.empty()) {
        updates.push_back(open);
      }
      open = {};
    }
  }
  return updates;
}

int whole_bytes(double bytes, const std::string& path) {
  if (!(bytes >= 1.0 && bytes <= kMostElementBytes)) {
    throw std::runtime_error(path + ": element_bytes must be 1 to 16");
  }
  return static_cast<int>(bytes);
}

StepRecord record_of(const Update& update, const std::string& path) {
  StepRecord record;
  record.accumulate = static_cast<int>(update.backwards.size());
  record.update = update.seconds;
  for (const Json& span : update.forwards) {
    record.forward += span["dur"].get<double>() * 1e-6 / record.accumulate;
  }
  for (const Json& span : update.backwards) {
    record.backward += span["dur"].get<double>() * 1e-6 / record.accumulate;
  }
  const double start = update.backwards.back()["ts"].get<double>();
  for (const Json& span : update.buckets) {
    const Json& figures = span.value("args", Json::object());
    if (!figures.contains("bytes") || !figures.contains("element_bytes")) {
      throw std::runtime_error(path +
                               ": the trace does not say how large its buckets are; record "
                               "it with a program of this version of lockstep");
    }
    record.element = whole_bytes(figures["element_bytes"].get<double>(), path);
    const double ready = (span["ts"].get<double>() - start) * 1e-6;
    record.buckets.push_back({std::max(0.0, ready), figures["bytes"].get<double>()});
  }
  return record;
}

StepRecord from_trace(const Json& json, const std::string& path) {
  std::map<int, std::vector<Json>> ranks;
  for (const Json& event : json["traceEvents"]) {
    if (is_span_of_the_step(event)) {
      ranks[event.value("pid", 0)].push_back(event);
    }
  }
  const auto shorter = [](const Update& a, const Update& b) { return a.compute() < b.compute(); };
  std::vector<Update> medians;
  for (auto& [rank, spans] : ranks) {
    std::vector<Update> updates = updates_of(std::move(spans));
    if (!updates.empty()) {
      std::sort(updates.begin(), updates.end(), shorter);
      medians.push_back(updates[updates.size() / 2]);
    }
  }
  if (medians.empty()) {
    throw std::runtime_error(path +
                             ": has no update with forward, backward and buckets; record "
                             "whole updates with lockstep::StepTrace, on a CPU and not in a "
                             "captured step");
  }
  return record_of(*std::max_element(medians.begin(), medians.end(), shorter), path);
}

/// A number of `object`; `otherwise` if there is none.
double figure(const Json& object, const char* name, double most, double otherwise,
              const std::string& path) {
  const Json found = object.value(name, Json(otherwise));
  const double value = found.is_number() ? found.get<double>() : -1.0;
  if (!(value >= 0.0 && value <= most)) {
    std::ostringstream text;
    text << path << ": \"" << name << "\" is " << found.dump() << ", expected a number from 0 to "
         << most;
    throw std::runtime_error(text.str());
  }
  return value;
}

StepRecord from_figures(const Json& json, const std::string& path) {
  const auto positive = [&](const char* name) {
    if (!json.contains(name) || !json[name].is_number() || !(json[name].get<double>() > 0.0)) {
      throw std::runtime_error(path + ": needs {\"" + name + "\": a number above 0}");
    }
    return json[name].get<double>();
  };
  StepRecord record;
  record.forward = positive("forward_ms") * 1e-3;
  record.backward = positive("backward_ms") * 1e-3;
  record.update = positive("update_ms") * 1e-3;
  const double accumulate = figure(json, "accumulate", kMostAccumulate, 1.0, path);
  if (accumulate != std::floor(accumulate)) {
    throw std::runtime_error(path + ": \"accumulate\" is " + json["accumulate"].dump() +
                             ", expected a whole number");
  }
  record.accumulate = std::max(1, static_cast<int>(accumulate));
  record.element = whole_bytes(positive("element_bytes"), path);
  for (const Json& bucket : json.value("buckets", Json::array())) {
    record.buckets.push_back({figure(bucket, "ready_ms", kMostMilliseconds, 0.0, path) * 1e-3,
                              figure(bucket, "bytes", kMostBucketBytes, 0.0, path)});
  }
  if (record.bytes() <= 0.0) {
    throw std::runtime_error(path +
                             ": needs {\"buckets\": [{\"ready_ms\": ..., \"bytes\": ...}, ...]}");
  }
  return record;
}

}  // namespace

StepRecord StepRecord::read(const std::string& path) {
  std::ifstream file(path);
  const Json json = Json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    throw std::runtime_error(path + ": cannot be read as a JSON object");
  }
  try {
    return json.contains("traceEvents") ? from_trace(json, path) : from_figures(json, path);
  } catch (const Json::exception& error) {  // a value of another type
    throw std::runtime_error(path + ": " + error.what());
  }
}

double StepRecord::bytes() const {
  double sum = 0.0;
  for (const Bucket& bucket : buckets) {
    sum += bucket.bytes;
  }
  return sum;
}

StepRecord StepRecord::with_buckets(double first_bytes, double bytes) const {
  StepRecord result = *this;
  result.buckets.clear();
  const double all = this->bytes();
  double done = 0.0;
  while (done < all) {
    const double end = std::min(all, done + (result.buckets.empty() ? first_bytes : bytes));
    double reached = 0.0;
    double since = 0.0;
    double ready = 0.0;
    for (const Bucket& bucket : buckets) {
      if (reached < end) {
        const double part = std::min(1.0, (end - reached) / bucket.bytes);
        ready = since + part * (bucket.ready - since);
      }
      reached += bucket.bytes;
      since = bucket.ready;
    }
    result.buckets.push_back({ready, end - done});
    done = end;
  }
  return result;
}

}  // namespace lockstep::launcher
