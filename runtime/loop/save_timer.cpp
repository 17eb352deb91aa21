#include <ATen/ops/full.h>
#include <lockstep/runtime/loop/impl/save_timer.h>

#include <chrono>
#include <utility>

namespace lockstep::detail {
namespace {

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

SaveTimer::SaveTimer(Communicator ranks, double every, std::function<double()> clock)
    : ranks_(std::move(ranks)),
      every_(every),
      clock_(clock ? std::move(clock) : steady_seconds),
      since_(clock_()) {}

bool SaveTimer::is_due() const {
  if (every_ == 0.0) {
    return false;
  }
  const at::Tensor is_over = at::full({1}, clock_() - since_ >= every_ ? 1 : 0, at::kByte);
  ranks_.broadcast(is_over, 0).wait();
  return is_over.const_data_ptr<uint8_t>()[0] != 0;
}

}  // namespace lockstep::detail
