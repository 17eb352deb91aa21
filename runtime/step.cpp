// The micro-batches of a window: closure, scaled backward, what goes wrong in them.
#include <ATen/ops/_to_copy.h>
#include <lockstep/amp/autocast.h>
#include <lockstep/runtime/step.h>

#include <chrono>
#include <cmath>
#include <iostream>

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

amp::DecisionRule decision_rule(const TrainerOptions& options) {
  return {amp::scaler_rule(options.precision().loss_scaler_options()), options.clip_grad_norm(),
          static_cast<float>(options.clip_grad_value()), options.schedule()};
}

}  // namespace

Step::Step(StepParts parts)
    : parts_(std::move(parts)),
      decisions_(parts_.device, parts_.host_acts, decision_rule(parts_.options), parts_.scaler),
      consensus_(parts_.communicator, parts_.agreement, parts_.host_acts) {
  parts_.reducer.follow(decisions_.feedback());
}

/// The other ranks may have to hear of a failure in the last window.
Step::~Step() {
  if (consensus_.on_its_way() && std::uncaught_exceptions() == 0) {
    try {
      settle();
    } catch (const std::exception& error) {
      std::cerr << error.what() << std::endl;
    }
  }
}

void Step::begin_window() {
  if (count_ > 0) {
    return;
  }
  settle();
  require_budget();
  arm_diagnosis();
}

void Step::micro_batch(const std::function<Loss()>& closure, bool under_autocast) {
  attempt([&] { parts_.watch.require_unchanged(count_ == 0); });
  if (parts_.diagnosis.armed() && under_autocast) {
    attempt([&] { replay(closure); });
  }
  if (parts_.options.precision().autocast() && !weight_casts_.has_value()) {
    weight_casts_.emplace();
  }
  const auto start = Clock::now();
  const Loss loss = attempt([&] { return forward(closure, under_autocast); });
  prepare_backward();
  attempt([&] { parts_.scaler.scale(loss.tensor().reshape({})).backward(); });
  ++count_;
  ++micro_batches_;
  compute_seconds_ += std::chrono::duration<double>(Clock::now() - start).count();
}

/// Runs `body`; where it throws, the other ranks are told before the exception goes on.
template <typename Body>
auto Step::attempt(const Body& body) -> decltype(body()) {
  std::exception_ptr error;
  try {
    return body();
  } catch (const CommunicationError&) {
    throw;
  } catch (...) {
    error = std::current_exception();
  }
  fail(error);
}

Loss Step::under_autocast(const std::function<Loss()>& closure) const {
  const Precision& precision = parts_.options.precision();
  const amp::Autocast autocast(parts_.device.type(), precision.compute_dtype(),
                               precision.autocast());
  return closure();
}

void Step::replay(const std::function<Loss()>& closure) {
  const double micro_batches = static_cast<double>(parts_.options.accumulate());
  parts_.diagnosis.replay([&] { return under_autocast(closure); }, parts_.scaler.value(),
                          1.0 / micro_batches, micro_batches_);
}

Loss Step::forward(const std::function<Loss()>& closure, bool under_autocast) {
  Loss loss = under_autocast ? this->under_autocast(closure) : closure();
  require_scalar_with_grad(loss.tensor());
  LOCKSTEP_CHECK(kind_is_sum_.value_or(is_sum_.value_or(loss.is_sum())) == loss.is_sum(),
                 "this loss is ", loss.is_sum() ? "a Loss::sum" : "a mean",
                 ", the earlier ones were not; use one kind throughout");
  is_sum_ = loss.is_sum();
  note_loss(loss);
  ++with_data_;
  weight_ += loss.weight();
  return loss;
}

/// Copied, so that nothing the caller does to his tensor later changes a report.
void Step::note_loss(const Loss& loss) {
  last_loss_ = at::_to_copy(loss.tensor().detach().reshape({}), at::kDouble);
  if (loss.is_sum() && loss.weight() > 0) {
    last_loss_.div_(loss.weight());
  }
  const amp::Decision& known = decisions_.known();
  if (known.updates > 0) {
    return;
  }
  if (parts_.host_acts == HostActs::at_once) {
    require_number(*last_loss_.const_data_ptr<double>());
  } else {
    decisions_.note_loss(last_loss_);
    require_number(known.loss);
  }
}

void Step::require_number(double loss) const {
  LOCKSTEP_CHECK_CODE(!std::isnan(loss), ExitCode::non_finite,
                      "the loss is NaN before the first update: the data or the model is faulty, "
                      "no loss scale can cure it");
}

void Step::empty_micro_batch() {
  attempt([&] {
    parts_.watch.require_unchanged(count_ == 0);
    LOCKSTEP_CHECK(parts_.options.uneven_data(),
                   "step_without_data() needs TrainerOptions().uneven_data(true) on every rank");
  });
  prepare_backward();
  ++count_;
}

void Step::prepare_backward() {
  const bool last = count_ + 1 == parts_.options.accumulate();
  if (!last) {
    parts_.reducer.collect();
    return;
  }
  if (agrees_first()) {
    agree_on_weights();
  }
  parts_.reducer.synchronise(packing_factor());
}

/// The global denominator, before the gradients are packed; no bucket is on its way yet.
void Step::agree_on_weights() {
  weights_everywhere_ = parts_.agreement.exchange(word());
  if (weights_everywhere_->error > 0) {
    fail_elsewhere();
  }
  const Word& all = *weights_everywhere_;
  if (all.sums > 0 && all.means > 0) {
    end_window();
    throw Error("some ranks return Loss::sum, others a mean; use one kind on all ranks");
  }
  if (all.sums + all.means > 0) {
    kind_is_sum_ = all.sums > 0;
  }
}

/// What each gradient is multiplied with when packed; the reduction then averages over ranks.
double Step::packing_factor() const {
  if (!weighted()) {
    return 1.0 / static_cast<double>(parts_.options.accumulate());
  }
  const double total = weights_everywhere_->weight;
  return total > 0 ? parts_.communicator.size() / total : 0.0;
}

StepReport Step::report_open_window() const {
  StepReport report;
  report.micro_batch_ = micro_batches_;
  report.decision_ = decisions_.latest();
  report.loss_ = last_loss_;
  report.base_learning_rate_ = parts_.learning_rate;
  report.schedule_ = parts_.options.schedule();
  report.compute_seconds_ = compute_seconds_;
  return report;
}

amp::ScalerState Step::known_scaler() const {
  return parts_.scaler.options().enabled() ? decisions_.known().scaler : amp::ScalerState();
}

void Step::require_budget() {
  try {
    amp::check_skip_budget(parts_.scaler.options(), known_scaler());
  } catch (const Error& error) {
    const std::string& diagnosis = parts_.diagnosis.text();
    throw Error(diagnosis.empty() ? error.what() : c10::str(error.what(), "\n", diagnosis),
                error.code());
  }
}

void Step::arm_diagnosis() {
  const int64_t chosen = parts_.options.diagnose_after_skips();
  const int64_t after = chosen > 0 ? chosen : parts_.scaler.options().max_consecutive_skips() - 1;
  if (diagnose_everywhere_ || (after > 0 && known_scaler().consecutive_skips == after)) {
    parts_.diagnosis.arm();
  }
  diagnose_everywhere_ = false;
}

std::vector<at::Tensor> Step::residuals() const {
  std::vector<at::Tensor> kept;
  for (const at::Tensor& both : parts_.reducer.residuals()) {
    kept.push_back(both[decisions_.latest()->read().feedback.kept]);
  }
  return kept;
}

void Step::visit_state(StateArchive& archive) {
  int64_t kind = kind_is_sum_.has_value() ? static_cast<int64_t>(*kind_is_sum_) : -1;
  int64_t updates = this->updates();
  archive.number("updates", updates);
  archive.number("micro_batches", micro_batches_);
  archive.number("loss_is_sum", kind);
  double residual_scale = decisions_.latest()->read().feedback.scale;
  if (parts_.options.precision().feeds_errors_back()) {
    archive.real("residual_scale", residual_scale);
  }
  if (archive.loading()) {
    kind_is_sum_ = kind < 0 ? std::nullopt : std::make_optional(kind != 0);
    windows_ = updates;
    decisions_.restart(updates, static_cast<float>(residual_scale));
  }
}

}  // namespace lockstep
