// The micro-batches of a window: closure, scaled backward, what goes wrong in them.
#include <ATen/ops/_to_copy.h>
#include <lockstep/amp/autocast.h>
#include <lockstep/checkpointing/activation/rng_state.h>
#include <lockstep/collectives/as_error.h>
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
      loss_scales_(parts_.options.losses(), parts_.scaler.options(), parts_.device, parts_.scaler),
      decisions_(parts_.device, parts_.host_acts, decision_rule(parts_.options), parts_.scaler),
      consensus_(parts_.communicator, parts_.agreement, parts_.host_acts) {
  parts_.reducer.follow(decisions_.feedback());
  for (const ModelTensor& parameter : parts_.trainable.parameters) {
    weights_.insert(parameter.tensor.unsafeGetTensorImpl());
  }
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
  warn_of_skips();
  require_budget();
  arm_diagnosis();
  plan_learning_rate();
}

void Step::plan_learning_rate() {
  const Schedule& schedule = parts_.options.schedule();
  if (schedule.kind != Schedule::Kind::function) {
    return;
  }
  const auto plan = [&] { decisions_.plan(schedule); };
  if (parts_.options.cuda_graph()) {
    parts_.agreement.attempt(plan);  // no rank can tell the others in the middle of a record
  } else {
    attempt(plan);
  }
}

void Step::take_edited_rates() {
  attempt([&] { parts_.updater->take_edited_rates(); });
}

void Step::micro_batch(const std::function<Loss()>& closure, bool under_autocast) {
  attempt([&] { parts_.watch->require_unchanged(count_ == 0); });
  if (parts_.diagnosis.armed() && under_autocast) {
    attempt([&] { replay(closure); });
  }
  if (parts_.options.precision().autocast() && !weight_casts_.has_value()) {
    weight_casts_.emplace(weights_);
  }
  const auto start = Clock::now();
  std::optional<activation::RngState> random;
  if (before_first_update()) {
    random = activation::RngState::current();
  }
  const Loss loss = attempt([&] { return forward(closure, under_autocast); });
  prepare_backward();
  require_number([&] {
    if (under_autocast) {
      const activation::RngGuard same_numbers(*random);
      weight_casts_.reset();  // so that the weights are seen where they are cast
      replay(closure);
    }
  });
  attempt([&] { backward(loss); });
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

amp::Autocast Step::autocast() const {
  const Precision& precision = parts_.options.precision();
  return {parts_.device.type(), precision.compute_dtype(), precision.autocast()};
}

Loss Step::under_autocast(const std::function<Loss()>& closure) const {
  const amp::Autocast region = autocast();
  return closure();
}

void Step::replay(const std::function<Loss()>& closure) {
  const double micro_batches = static_cast<double>(parts_.options.accumulate());
  parts_.diagnosis.replay([&] { return loss_scales_.sum_in_unit(under_autocast(closure)); },
                          parts_.scaler.value(), 1.0 / micro_batches, micro_batches_);
}

Loss Step::forward(const std::function<Loss()>& closure, bool under_autocast) {
  Loss loss = under_autocast ? this->under_autocast(closure) : closure();
  require_scalar_with_grad(loss.tensor());
  loss_scales_.check(loss);
  LOCKSTEP_CHECK(kind_is_sum_.value_or(is_sum_.value_or(loss.is_sum())) == loss.is_sum(),
                 "this loss is ", loss.is_sum() ? "a Loss::sum" : "a mean",
                 ", the earlier ones were not; use one kind throughout");
  is_sum_ = loss.is_sum();
  note_loss(loss);
  ++with_data_;
  weight_ += loss.weight();
  return loss;
}

/// The only backward whose gradients are the step's.
void Step::backward(const Loss& loss) {
  if (loss_scales_.several()) {
    loss_scales_.backward(loss, parts_.reducer);
    return;
  }
  parts_.reducer.take_from([&] { run_backward(parts_.scaler.scale(loss.tensor().reshape({}))); });
}

/// Copied, so that nothing the caller does to his tensor later changes a report.
void Step::note_loss(const Loss& loss) {
  last_loss_ = at::_to_copy(loss.tensor().detach().reshape({}), at::kDouble);
  if (loss.is_sum() && loss.weight() > 0) {
    last_loss_.div_(loss.weight());
  }
  if (!before_first_update()) {
    return;
  }
  if (parts_.host_acts == HostActs::at_once) {
    nan_loss_ = nan_loss_ || std::isnan(*last_loss_.const_data_ptr<double>());
  } else {
    decisions_.note_loss(last_loss_);
    nan_loss_ = std::isnan(decisions_.known().loss);
  }
}

/// Before the first update a NaN loss is an Error at once: no scale cures it, and nothing is learnt
/// yet. All ranks replay the micro-batch at hand, since a forward may communicate, and those with
/// such a loss say where it comes from.
void Step::require_number(const std::function<void()>& replay) {
  if (!weights_everywhere_.has_value() || weights_everywhere_->nan_loss == 0) {
    return;
  }
  std::string found;
  try {
    replay();
  } catch (const CommunicationError&) {
    throw;
  } catch (...) {
    found = c10::str("; its replay failed: ", as_error(std::current_exception()).what());
  }
  found = parts_.diagnosis.of_first_loss(parts_.communicator.rank()) + found;
  try {
    if (nan_loss_) {
      fail(std::make_exception_ptr(
          Error("the loss is NaN before the first update: " + found, ExitCode::non_finite)));
    }
    tell_of_failure();
    parts_.agreement.raise(std::nullopt);
  } catch (const Error& error) {
    parts_.diagnosis.note(error.what());
    throw;
  }
}

void Step::empty_micro_batch() {
  attempt([&] {
    parts_.watch->require_unchanged(count_ == 0);
    LOCKSTEP_CHECK(parts_.options.uneven_data(),
                   "step_without_data() needs TrainerOptions().uneven_data(true) on every rank");
  });
  prepare_backward();
  require_number([] {});
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
  report.base_learning_rate_ = parts_.updater->learning_rates().of(0);
  report.schedule_ = parts_.options.schedule();
  report.compute_seconds_ = compute_seconds_;
  return report;
}

/// On rank 0, where the count of skips in a row gets to 10, 20, 40 and so on.
void Step::warn_of_skips() {
  const amp::ScalerState& scaler = decisions_.known().scaler;
  const int64_t skips = scaler.consecutive_skips;
  int64_t next = 10;
  while (next < skips) {
    next *= 2;
  }
  if (skips == next && warned_of_ != skips && parts_.communicator.rank() == 0) {
    std::cerr
        << "warning: " << skips
        << " updates in a row were skipped, since a gradient was not finite on some rank; the "
           "loss scale is "
        << scaler.scale
        << ". Trainer::diagnose_next_overflow() or TrainerOptions::diagnose_after_skips says "
           "where from; LossScalerOptions::max_consecutive_skips ends such a run"
        << std::endl;
  }
  warned_of_ = skips;
}

void Step::require_budget() {
  try {
    amp::check_skip_budget(parts_.scaler.options(), decisions_.known().scaler);
  } catch (const Error& error) {
    const std::string& diagnosis = parts_.diagnosis.text();
    throw Error(diagnosis.empty() ? error.what() : c10::str(error.what(), "\n", diagnosis),
                error.code());
  }
}

void Step::arm_diagnosis() {
  const int64_t chosen = parts_.options.diagnose_after_skips();
  const amp::ScalerState& scaler = decisions_.known().scaler;
  const bool now = chosen > 0 ? scaler.consecutive_skips == chosen
                              : amp::next_skip_spends_budget(parts_.scaler.options(), scaler);
  if (diagnose_everywhere_ || now) {
    parts_.diagnosis.arm();
  }
  diagnose_everywhere_ = false;
}

const amp::LossScaler& Step::scaler_of(int64_t loss) const {
  LOCKSTEP_CHECK(loss >= 0 && loss < parts_.options.losses(), "there is no loss ", loss,
                 ": TrainerOptions.losses is ", parts_.options.losses());
  return loss_scales_.several() ? loss_scales_.scalers()[static_cast<size_t>(loss)] : parts_.scaler;
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
  parts_.updater->learning_rates().visit_state(archive);
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
