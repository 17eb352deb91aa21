#include <c10/util/StringUtil.h>
#include <lockstep/checkpointing/activation/impl/operator_trace.h>

#include <algorithm>
#include <memory>

namespace lockstep::activation {

namespace {

thread_local std::vector<std::string>* names_of_this_thread = nullptr;

std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& function) {
  if (names_of_this_thread != nullptr) {
    names_of_this_thread->emplace_back(function.name());
  }
  return nullptr;
}

}  // namespace

OperatorTrace::OperatorTrace(std::vector<std::string>& names)
    : outer_(std::exchange(names_of_this_thread, &names)),
      handle_(at::addThreadLocalCallback(
          at::RecordFunctionCallback(&note).scopes({at::RecordScope::FUNCTION}))) {
  // Nested traces would note each operator twice.
  if (outer_ != nullptr) {
    at::disableCallback(handle_);
  }
}

OperatorTrace::~OperatorTrace() {
  at::removeCallback(handle_);
  names_of_this_thread = outer_;
}

std::string first_difference(const std::vector<std::string>& forward,
                             const std::vector<std::string>& recomputed) {
  const auto shared = std::min(forward.size(), recomputed.size());
  const auto differ =
      std::mismatch(recomputed.begin(), recomputed.begin() + shared, forward.begin());
  const auto index = differ.first - recomputed.begin();
  if (differ.first != recomputed.begin() + shared) {
    return c10::str("operator ", index, " was ", *differ.second, " in forward and is ",
                    *differ.first, " in recompute");
  }
  if (recomputed.size() > forward.size()) {
    return c10::str("recompute runs ", *differ.first, " after the ", forward.size(),
                    " operators of forward");
  }
  return c10::str("recompute runs the first ", shared, " of ", forward.size(),
                  " operators of forward");
}

}  // namespace lockstep::activation
