#include <lockstep/runtime/step/impl/consensus.h>
#include <lockstep/runtime/step/impl/span.h>

#include <exception>
#include <iostream>

namespace lockstep::detail {
namespace {

/// Numbers of windows are compared modulo this, so that sums of their squares over 8192 ranks are
/// exact.
constexpr int64_t kWindows = int64_t{1} << 20;

}  // namespace

Consensus::~Consensus() {
  if (posted_ && std::uncaught_exceptions() == 0) {
    try {
      settle();
    } catch (const std::exception& error) {
      std::cerr << error.what() << std::endl;
    }
  }
}

Votes Consensus::complete(Votes mine, const Decisions& decisions, int64_t window) {
  const bool signalled = stop_signals_ && stop_signals_->came();
  mine.stop = signalled || stop_here_.load(std::memory_order_relaxed) ? 1 : 0;
  mine.diagnose = diagnose_here_ ? 1 : 0;
  mine.window = static_cast<double>(window % kWindows);
  mine.window_squared = mine.window * mine.window;
  rate_check_.add_to(mine, storage_.updater().learning_rates(), decisions.planned(), window);
  return mine;
}

void Consensus::stop_on_signals(const std::vector<int>& signals) {
  if (stop_signals_ && stop_signals_->came()) {
    request_stop();
  }
  stop_signals_.emplace(signals);
}

void Consensus::post(Votes mine, int64_t window) {
  storage_.replicas().add_to(mine, window);
  posted_.emplace(agreement_, mine);
}

void Consensus::settle() {
  if (!posted_) {
    return;
  }
  Votes all;
  StepSpan(kWaitForVotes).during([&] { all = std::exchange(posted_, std::nullopt)->collect(); });
  if (all.error > 0) {
    agreement_.raise(std::nullopt);
  }
  if (!rate_check_.equal(all, devices_.size())) {
    rate_check_.raise(acts_, agreement_);
  }
  storage_.replicas().take_shared(all);
  if (storage_.replicas().differ(all)) {
    storage_.replicas().raise(all);
  }
  stop_everywhere_ = stop_everywhere_ || all.stop > 0;
  diagnose_everywhere_ = diagnose_everywhere_ || all.diagnose > 0;
  received_ = all;
}

void Consensus::discard() {
  if (posted_) {
    std::exchange(posted_, std::nullopt)->collect();
  }
}

}  // namespace lockstep::detail
