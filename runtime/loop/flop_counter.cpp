#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/record_function.h>
#include <c10/core/GradMode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <lockstep/checkpointing/activation/recomputing.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/flop_counter.h>
#include <lockstep/runtime/loop/own/operator_flops.h>

#include <algorithm>
#include <atomic>
#include <chrono>

namespace lockstep {
namespace {

/// A thread-local place that autograd passes on to the threads of a backward; nobody else uses it.
/// A function, because the name is no constant expression from torch 2.15 on.
c10::DebugInfoKind place() {
  return c10::DebugInfoKind::TEST_INFO;
}

/// Marks an operator that counts.
struct Counted : at::ObserverContext {};

}  // namespace

class FlopCounter::Count final : public c10::DebugInfoBase {
 public:
  static std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
    auto* count = static_cast<Count*>(c10::ThreadLocalDebugInfo::get(place()));
    const detail::OperatorFlops* flops = detail::flops_of(function.name());
    if (count == nullptr || flops == nullptr || is_recomputing()) {
      return nullptr;
    }
    if (counted_ == 0) {
      count->sum += (*flops)(function.inputs());  // throws for inputs that the operator refuses
    }
    ++counted_;
    return std::make_unique<Counted>();
  }
  static void on_end(const at::RecordFunction& /*function*/, at::ObserverContext* context) {
    counted_ -= context != nullptr ? 1 : 0;
  }

  std::atomic<int64_t> sum{0};

 private:
  /// Depth of nested operators that count; only the outermost is added.
  static thread_local int counted_;
};

thread_local int FlopCounter::Count::counted_ = 0;

struct FlopCounter::Watch {
  Watch()
      : count(std::make_shared<Count>()),
        visible(place(), count),
        handle(
            at::addThreadLocalCallback(at::RecordFunctionCallback(&Count::on_start, &Count::on_end)
                                           .needsInputs(true)
                                           .scopes({at::RecordScope::FUNCTION}))) {}
  ~Watch() { at::removeCallback(handle); }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  std::shared_ptr<Count> count;
  c10::DebugInfoGuard visible;
  at::CallbackHandle handle;
};

FlopCounter::FlopCounter() {
  LOCKSTEP_CHECK(c10::ThreadLocalDebugInfo::get(place()) == nullptr,
                 "FlopCounter: another one counts on this thread; end it first");
  watch_ = std::make_unique<Watch>();
}

FlopCounter::~FlopCounter() = default;

int64_t FlopCounter::flops() const {
  return watch_->count->sum;
}

double measure_peak_flops(c10::Device device, c10::ScalarType dtype) {
  using Clock = std::chrono::steady_clock;
  constexpr int64_t kLargest = 8192;
  constexpr double kEnough = 0.02;  // seconds
  constexpr int kRuns = 5;
  const c10::AutoGradMode no_grad(false);
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const at::DisableRecordFunctionGuard not_counted;
  double best = 0.0;
  for (int64_t size = 256; size <= kLargest; size *= 2) {
    const at::Tensor factor =
        at::ones({size, size}, at::TensorOptions().dtype(dtype).device(device));
    const auto seconds = [&] {
      const auto begin = Clock::now();
      at::mm(factor, factor).select(0, 0).select(0, 0).item();  // waits for a device
      return std::chrono::duration<double>(Clock::now() - begin).count();
    };
    seconds();  // chooses its kernel
    double shortest = seconds();
    for (int run = 1; run < kRuns; ++run) {
      shortest = std::min(shortest, seconds());
    }
    const auto side = static_cast<double>(size);
    best = std::max(best, 2.0 * side * side * side / std::max(shortest, 1e-9));
    if (shortest > kEnough) {
      break;
    }
  }
  return best;
}

}  // namespace lockstep
