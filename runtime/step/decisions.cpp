#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <lockstep/collectives/impl/device_watch.h>
#include <lockstep/runtime/step/impl/decisions.h>

#include <cmath>
#include <cstddef>
#include <cstring>

namespace lockstep::detail {
namespace {

using amp::Decision;

static_assert(std::is_trivially_copyable_v<Decision>);
static_assert(offsetof(Decision, totals) == 0 && offsetof(Decision, failed) == 16 &&
                  offsetof(Decision, loss_sum) == 24 && offsetof(Decision, loss) == 32 &&
                  offsetof(Decision, loss_overflow) == 40,
              "the views of a Decision's first six fp64 elements");

constexpr auto kBytes = static_cast<int64_t>(sizeof(Decision));

amp::ScalerState* state_of(const at::Tensor& bytes) {
  return static_cast<amp::ScalerState*>(bytes.mutable_data_ptr());
}

}  // namespace

const Decision& DecisionCopy::read() const {
  if (copied_ && !arrived_.load(std::memory_order_acquire)) {
    copied_->synchronize();
    arrived_.store(true, std::memory_order_release);
  }
  return *static_cast<const Decision*>(bytes_.const_data_ptr());
}

Decisions::Decisions(c10::Device device, HostActs acts, const amp::DecisionRule& rule,
                     amp::LossScaler& scaler)
    : device_(device), acts_(acts), rule_(rule), scaler_(scaler) {
  bytes_ = at::zeros({kBytes}, at::TensorOptions().dtype(at::kByte).device(device));
  const at::Tensor numbers = bytes_.narrow(0, 0, 6 * sizeof(double)).view(at::kDouble);
  measured_ = numbers.narrow(0, 0, 4);
  totals_ = numbers.narrow(0, 0, 2);
  rank_sums_ = numbers.narrow(0, 1, 3);
  loss_sum_ = numbers.select(0, 3);
  loss_ = numbers.select(0, 4);
  loss_overflow_ = numbers.select(0, 5);
  planned_bytes_ = bytes_.narrow(0, offsetof(Decision, planned), sizeof(amp::PlannedFactors));
  skipped_ = bytes_.narrow(0, offsetof(Decision, skipped), sizeof(Decision::skipped));
  restart(0);
}

void Decisions::restart(int64_t updates) {
  Decision decision;
  decision.updates = updates;
  const at::Tensor scaler = state_bytes(scaler_).cpu();
  decision.scaler = *state_of(scaler);
  const at::Tensor host = at::empty({kBytes}, at::kByte);
  std::memcpy(host.mutable_data_ptr(), &decision, sizeof(decision));
  bytes_.copy_(host);
  latest_ = copy();
  earlier_ = latest_;
}

bool Decisions::note_loss(const at::Tensor& loss) {
  if (acts_ == HostActs::at_once) {
    return std::isnan(*loss.const_data_ptr<double>());
  }
  loss_.copy_(loss);
  return std::isnan(known().loss);
}

void Decisions::visit_state(StateArchive& archive) {
  int64_t updates = latest_->read().updates;
  archive.number("updates", updates);
  if (archive.loading()) {
    restart(updates);
  }
}

void Decisions::plan(const Schedule& schedule) {
  planned_.first = known().updates;
  planned_.factors[0] = schedule.factor(planned_.first);
  planned_.factors[1] =
      acts_ == HostActs::at_once ? planned_.factors[0] : schedule.factor(planned_.first + 1);
  const at::Tensor host = host_memory_for(device_, {planned_bytes_.numel()}, at::kByte);
  std::memcpy(host.mutable_data_ptr(), &planned_, sizeof(planned_));
  planned_bytes_.copy_(host, /*non_blocking=*/!device_.is_cpu());
}

void Decisions::begin(const at::Tensor& loss_sum) {
  measured_.zero_();
  if (loss_sum.defined()) {
    loss_sum_.copy_(loss_sum);
  }
}

void Decisions::mark_failed() {
  rank_sums_.select(0, 1).fill_(1.0);
  loss_sum_.fill_(std::nan(""));
}

void Decisions::decide() {
  amp::decide_in_place(place(), state_of(state_bytes(scaler_)), rule_, device_);
}

void Decisions::conclude() {
  amp::conclude_in_place(place(), state_of(state_bytes(scaler_)), rule_, device_);
}

void Decisions::publish() {
  earlier_ = latest_;
  latest_ = copy();
}

const Decision& Decisions::known() const {
  return (acts_ == HostActs::at_once ? latest_ : earlier_)->read();
}

const amp::StepState* Decisions::step() const {
  return &place()->step;
}

amp::StepState Decisions::step_on_host() const {
  const at::Tensor host = bytes_.cpu();
  return static_cast<const Decision*>(host.const_data_ptr())->step;
}

/// As in amp::decide(), and as torch.nn.utils.clip_grad_norm_.
double Decisions::gradient_factor_on_host() const {
  const at::Tensor host = bytes_.cpu();
  const auto* decision = static_cast<const Decision*>(host.const_data_ptr());
  const double scale = decision->scale;
  const double ratio = rule_.clip_norm / (std::sqrt(decision->totals.sum_squares) / scale + 1e-6);
  return 1.0 / scale * (ratio < 1.0 ? ratio : 1.0);
}

Decision* Decisions::place() const {
  return static_cast<Decision*>(bytes_.mutable_data_ptr());
}

std::shared_ptr<const DecisionCopy> Decisions::copy() const {
  auto result = std::make_shared<DecisionCopy>();
  result->bytes_ = host_memory_for(device_, {kBytes}, at::kByte);
  if (device_.is_cpu()) {
    std::memcpy(result->bytes_.mutable_data_ptr(), place(), sizeof(Decision));
    return result;
  }
  result->bytes_.copy_(bytes_, /*non_blocking=*/true);
  const c10::impl::VirtualGuardImpl guard(device_.type());
  result->copied_.emplace(device_.type());
  result->copied_->record(guard.getStream(device_));
  return result;
}

}  // namespace lockstep::detail
