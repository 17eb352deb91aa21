#pragma once

#include <ATen/record_function.h>

#include <string>
#include <vector>

namespace lockstep::activation {

/// Notes the name of each operator that this thread runs while the object lives.
class OperatorTrace {
 public:
  explicit OperatorTrace(std::vector<std::string>& names);
  ~OperatorTrace();
  OperatorTrace(const OperatorTrace&) = delete;
  OperatorTrace& operator=(const OperatorTrace&) = delete;

 private:
  std::vector<std::string>* outer_;
  at::CallbackHandle handle_;
};

/// Where the recomputed list leaves forward's, in words; a recompute that ends early leaves it
/// nowhere.
std::string first_difference(const std::vector<std::string>& forward,
                             const std::vector<std::string>& recomputed);

}  // namespace lockstep::activation
