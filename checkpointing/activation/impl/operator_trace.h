#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/record_function.h>

#include <string>
#include <vector>

namespace lockstep::activation {

/// Records the name of each operator that this thread runs in the lifetime of the object.
class OperatorTrace {
 public:
  [[nodiscard]] explicit OperatorTrace(std::vector<std::string>& names);
  ~OperatorTrace();
  OperatorTrace(const OperatorTrace&) = delete;
  OperatorTrace& operator=(const OperatorTrace&) = delete;

 private:
  std::vector<std::string>* outer_;
  at::CallbackHandle handle_;
};

/// Describes in words the first difference between the operators of forward and of recompute. If
/// recompute only ended early, the text says how many operators it ran.
std::string first_difference(const std::vector<std::string>& forward,
                             const std::vector<std::string>& recomputed);

}  // namespace lockstep::activation
