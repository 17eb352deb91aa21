#include "predict/step_record.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "predict/json_file.h"

namespace lockstep::launcher {
namespace {

using Json = nlohmann::json;

constexpr const char* kBucket = "launch bucket ";
constexpr double kMostElementBytes = 16;
constexpr double kMostBytes = 1e12;  // of all buckets
constexpr double kMostMilliseconds = 1e9;
constexpr double kMostMicroseconds = 1e18;  // also of a clock that counts from 1970
constexpr double kMostAccumulate = 1e6;

/// A span of the step; times in seconds.
struct Span {
  Span(const Json& event, const std::string& path)
      : name(event["name"].get<std::string>()),
        begin(figure(event, "ts", kMostMicroseconds, 0.0, path) * 1e-6),
        duration(figure(event, "dur", kMostMicroseconds, 0.0, path) * 1e-6),
        figures(event.contains("args") ? &event["args"] : nullptr) {}

  std::string name;
  double begin;
  double duration;
  const Json* figures;
};

struct Update {
  std::vector<Span> forwards, backwards, buckets;
  double seconds = 0.0;
  double compute = 0.0;  // with forward and backward
};

bool is_span_of_the_step(const Json& event) {
  return event.is_object() && event.value("ph", "") == "X" && event.value("tid", -1.0) == 0.0 &&
         event.contains("ts") && event.contains("dur") && event.contains("name");
}

/// The complete updates of a rank.
std::vector<Update> updates_of(std::vector<Span> spans) {
  std::sort(spans.begin(), spans.end(),
            [](const Span& a, const Span& b) { return a.begin < b.begin; });
  std::vector<Update> updates;
  Update open;
  for (Span& span : spans) {
    if (span.name.rfind(kBucket, 0) == 0) {
      open.buckets.push_back(std::move(span));
    } else if (span.name == "forward" || span.name == "backward") {
      open.compute += span.duration;
      (span.name == "forward" ? open.forwards : open.backwards).push_back(std::move(span));
    } else if (span.name == "update") {
      open.seconds = span.duration;
      open.compute += span.duration;
      if (!open.forwards.empty() && open.forwards.size() == open.backwards.size() &&
          !open.buckets.empty()) {
        updates.push_back(std::move(open));
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
  for (const Span& span : update.forwards) {
    record.forward += span.duration / record.accumulate;
  }
  for (const Span& span : update.backwards) {
    record.backward += span.duration / record.accumulate;
  }
  for (const Span& span : update.buckets) {
    if (span.figures == nullptr || !span.figures->contains("bytes") ||
        !span.figures->contains("element_bytes")) {
      throw std::runtime_error(path +
                               ": the trace does not say how large its buckets are; record "
                               "it with a program of this version of lockstep");
    }
    record.element = whole_bytes(span.figures->at("element_bytes").get<double>(), path);
    record.buckets.push_back({std::max(0.0, span.begin - update.backwards.back().begin),
                              figure(*span.figures, "bytes", kMostBytes, 0.0, path)});
  }
  return record;
}

StepRecord from_trace(const Json& json, const std::string& path) {
  std::map<double, std::vector<Span>> ranks;
  for (const Json& event : json["traceEvents"]) {
    if (is_span_of_the_step(event)) {
      ranks[event.value("pid", 0.0)].emplace_back(event, path);
    }
  }
  const auto shorter = [](const Update& a, const Update& b) { return a.compute < b.compute; };
  std::vector<Update> medians;
  for (auto& [rank, spans] : ranks) {
    std::vector<Update> updates = updates_of(std::move(spans));
    if (!updates.empty()) {
      std::sort(updates.begin(), updates.end(), shorter);
      medians.push_back(std::move(updates[updates.size() / 2]));
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

StepRecord from_figures(const Json& json, const std::string& path) {
  const auto positive = [&](const char* name, double most) {
    const double value = figure(json, name, most, 0.0, path);
    if (value == 0.0) {
      throw std::runtime_error(path + ": needs {\"" + name + "\": a number above 0}");
    }
    return value;
  };
  StepRecord record;
  record.forward = positive("forward_ms", kMostMilliseconds) * 1e-3;
  record.backward = positive("backward_ms", kMostMilliseconds) * 1e-3;
  record.update = positive("update_ms", kMostMilliseconds) * 1e-3;
  const double accumulate = figure(json, "accumulate", kMostAccumulate, 1.0, path);
  if (accumulate != std::floor(accumulate)) {
    throw std::runtime_error(path + ": \"accumulate\" is " + json["accumulate"].dump() +
                             ", expected a whole number");
  }
  record.accumulate = std::max(1, static_cast<int>(accumulate));
  record.element = whole_bytes(positive("element_bytes", HUGE_VAL), path);
  for (const Json& bucket : json.value("buckets", Json::array())) {
    record.buckets.push_back({figure(bucket, "ready_ms", kMostMilliseconds, 0.0, path) * 1e-3,
                              figure(bucket, "bytes", kMostBytes, 0.0, path)});
  }
  if (record.bytes() <= 0.0) {
    throw std::runtime_error(path +
                             ": needs {\"buckets\": [{\"ready_ms\": ..., \"bytes\": ...}, ...]}");
  }
  return record;
}

}  // namespace

StepRecord StepRecord::read(const std::string& path) {
  const Json json = json_object(path);
  try {
    StepRecord record =
        json.contains("traceEvents") ? from_trace(json, path) : from_figures(json, path);
    if (record.bytes() > kMostBytes) {
      throw std::runtime_error(path + ": its buckets have more than 1e12 bytes in all");
    }
    return record;
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
  double reached = 0.0;  // bytes before `bucket`, which were ready after `since`
  double since = 0.0;
  for (auto bucket = buckets.begin(); done < all;) {
    const double end = std::min(all, done + (result.buckets.empty() ? first_bytes : bytes));
    while (reached + bucket->bytes < end) {
      reached += bucket->bytes;
      since = bucket->ready;
      ++bucket;
    }
    const double part = (end - reached) / bucket->bytes;
    result.buckets.push_back({since + part * (bucket->ready - since), end - done});
    done = end;
  }
  return result;
}

}  // namespace lockstep::launcher
