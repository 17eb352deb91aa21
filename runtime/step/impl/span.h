#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/record_function.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace lockstep::detail {

/// Names a part of a step while the object lives, for StepTrace and for LibTorch's profiler. Costs
/// next to nothing while nobody listens. Threads: begins and ends on the same one.
class StepSpan {
 public:
  static constexpr char kPrefix[] = "lockstep ";

  explicit StepSpan(const char* name) : record_(at::RecordScope::USER_SCOPE) {
    if (record_.isActive()) {
      begin(std::string(kPrefix) + name);
    }
  }
  StepSpan(const char* name, size_t number) : record_(at::RecordScope::USER_SCOPE) {
    if (record_.isActive()) {
      begin(std::string(kPrefix) + name + " " + std::to_string(number));
    }
  }
  /// Of a bucket: "launch bucket 3 (1000 x 2 bytes)".
  StepSpan(const char* name, size_t number, int64_t elements, int64_t element_bytes)
      : record_(at::RecordScope::USER_SCOPE) {
    if (record_.isActive()) {
      begin(std::string(kPrefix) + name + " " + std::to_string(number) + " (" +
            std::to_string(elements) + " x " + std::to_string(element_bytes) + " bytes)");
    }
  }

  /// Calls `body` while the object lives.
  template <typename Body>
  void during(const Body& body) const {
    body();
  }

 private:
  void begin(std::string name) {
    name_ = std::move(name);
    record_.before(name_.c_str());
  }

  std::string name_;  // before record_, which refers to it
  at::RecordFunction record_;
};

// The parts of a step. Those of buckets are followed by the number of the bucket.
constexpr char kForward[] = "forward";
constexpr char kBackward[] = "backward";
constexpr char kLaunchBucket[] = "launch bucket";  // starts its all-reduce
constexpr char kWaitForBucket[] = "wait for bucket";
constexpr char kWaitForVotes[] = "wait for votes";  // of the hosts
constexpr char kUpdate[] = "update";

}  // namespace lockstep::detail
