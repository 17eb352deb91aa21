#pragma once

#include <ATen/record_function.h>

#include <atomic>
#include <memory>
#include <set>
#include <string>

namespace lockstep::testing {

/// Counts, while it lives, the operators by which a host reads what may lie on a device.
class ReadWatch {
 public:
  ReadWatch() {
    reads = 0;
    handle_ = at::addGlobalCallback(
        at::RecordFunctionCallback(&ReadWatch::on_start).scopes({at::RecordScope::FUNCTION}));
  }
  ~ReadWatch() { at::removeCallback(handle_); }
  ReadWatch(const ReadWatch&) = delete;
  ReadWatch& operator=(const ReadWatch&) = delete;
  int count() const { return reads; }

 private:
  static std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
    static const std::set<std::string> kReads = {"aten::item", "aten::_local_scalar_dense",
                                                 "aten::is_nonzero", "aten::equal"};
    reads += static_cast<int>(kReads.count(function.name()));
    return nullptr;
  }

  static inline std::atomic<int> reads{0};
  at::CallbackHandle handle_;
};

}  // namespace lockstep::testing
