#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/runtime/runtime.h>
#include <lockstep/runtime/step/impl/span.h>
#include <lockstep/runtime/step_trace.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

struct TimedSpan {
  std::string name;
  double begin;  // microseconds
  double end;
};

/// What the callbacks of a span share: its name and when it began.
struct Begun : at::ObserverContext {
  std::string name;
  Clock::time_point at;
};

json complete_event(const std::string& name, double begin, double end, int rank, int64_t thread) {
  return {{"name", name},       {"ph", "X"},   {"ts", begin},
          {"dur", end - begin}, {"pid", rank}, {"tid", thread}};
}

json name_event(const char* kind, const std::string& name, int rank, int64_t thread) {
  return {{"name", kind}, {"ph", "M"}, {"pid", rank}, {"tid", thread}, {"args", {{"name", name}}}};
}

/// The number of the bucket in "launch bucket 3".
std::optional<int64_t> bucket_of(const std::string& name, const std::string& part) {
  if (name.rfind(part + " ", 0) != 0) {
    return std::nullopt;
  }
  return std::stoll(name.substr(part.size() + 1));
}

/// "launch bucket 3 (1000 x 2 bytes)" as the event "launch bucket 3" with its figures.
void describe_bucket(json& event) {
  const auto name = event["name"].get<std::string>();
  const size_t figures = name.find(" (");
  long long elements = 0;
  long long bytes = 0;
  if (figures != std::string::npos &&
      std::sscanf(name.c_str() + figures, " (%lld x %lld bytes)", &elements, &bytes) == 2) {
    event["name"] = name.substr(0, figures);
    event["args"] = {{"bytes", elements * bytes}, {"element_bytes", bytes}};
  }
}

/// The events of one rank.
json events_of(const std::vector<TimedSpan>& spans, int rank) {
  json events = {name_event("process_name", "rank " + std::to_string(rank), rank, 0),
                 name_event("thread_name", "step", rank, 0)};
  std::map<int64_t, double> launched;  // bucket -> when its all-reduce began
  std::map<int64_t, bool> named;
  for (const TimedSpan& span : spans) {
    events.push_back(complete_event(span.name, span.begin, span.end, rank, 0));
    if (const auto bucket = bucket_of(span.name, detail::kLaunchBucket)) {
      describe_bucket(events.back());
      launched[*bucket] = span.begin;
    }
    const auto bucket = bucket_of(span.name, detail::kWaitForBucket);
    if (!bucket || launched.count(*bucket) == 0) {
      continue;
    }
    const std::string name = "bucket " + std::to_string(*bucket);
    if (!named[*bucket]) {
      events.push_back(name_event("thread_name", name, rank, *bucket + 1));
      named[*bucket] = true;
    }
    events.push_back(
        complete_event("all-reduce of " + name, launched[*bucket], span.end, rank, *bucket + 1));
    launched.erase(*bucket);
  }
  return events;
}

}  // namespace

/// Listens to spans from its construction to stop().
struct StepTrace::Recorder {
  /// Requires that no other one listens.
  explicit Recorder(Clock::time_point zero) : zero(zero) {
    Recorder* none = nullptr;
    LOCKSTEP_CHECK(listening.compare_exchange_strong(none, this),
                   "a StepTrace of this process is recording already: destroy it first");
    handle = at::addThreadLocalCallback(
        at::RecordFunctionCallback(&begin, &end).scopes({at::RecordScope::USER_SCOPE}));
  }
  ~Recorder() { stop(); }

  void stop() {
    if (handle) {
      at::removeCallback(*std::exchange(handle, std::nullopt));
      listening = nullptr;
    }
  }

  // Callbacks have no data of their own; backward calls them on threads of autograd, too.
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& span) {
    const std::string name = span.name();
    const std::string prefix = detail::StepSpan::kPrefix;
    if (name.rfind(prefix, 0) != 0) {
      return nullptr;
    }
    auto begun = std::make_unique<Begun>();
    begun->name = name.substr(prefix.size());
    begun->at = Clock::now();
    return begun;
  }
  static void end(const at::RecordFunction& /*span*/, at::ObserverContext* context) {
    Recorder* recorder = listening;
    if (context == nullptr || recorder == nullptr) {
      return;
    }
    const auto* begun = static_cast<const Begun*>(context);
    const Clock::time_point now = Clock::now();
    const std::lock_guard<std::mutex> lock(recorder->mutex);
    recorder->spans.push_back(
        {begun->name, recorder->microseconds(begun->at), recorder->microseconds(now)});
  }

  double microseconds(Clock::time_point time) const {
    return std::chrono::duration<double, std::micro>(time - zero).count();
  }

  static std::atomic<Recorder*> listening;
  const Clock::time_point zero;
  std::optional<at::CallbackHandle> handle;
  std::mutex mutex;
  std::vector<TimedSpan> spans;
};

std::atomic<StepTrace::Recorder*> StepTrace::Recorder::listening = nullptr;

StepTrace::StepTrace(const Runtime& runtime) : runtime_(runtime) {
  Communicator control = runtime.control();
  control.barrier().wait();
  const Clock::time_point zero = Clock::now();
  detail::Agreement(control).attempt([&] { recorder_ = std::make_unique<Recorder>(zero); });
}

StepTrace::~StepTrace() = default;

void StepTrace::write(const std::string& path) {
  recorder_->stop();
  const detail::Agreement agreement(runtime_.control());
  const std::vector<std::string> ranks = agreement.gather("writing the trace " + path, [&] {
    return events_of(recorder_->spans, runtime_.rank()).dump();
  });
  agreement.attempt("writing the trace", [&] {
    if (!runtime_.is_main()) {
      return;
    }
    json events = json::array();
    for (const std::string& rank : ranks) {
      for (auto& event : json::parse(rank)) {
        events.push_back(std::move(event));
      }
    }
    std::ofstream file(path);
    file << json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump(1) << "\n";
    file.close();
    LOCKSTEP_CHECK(file.good(), path, ": cannot be written: ", std::strerror(errno));
  });
}

}  // namespace lockstep
