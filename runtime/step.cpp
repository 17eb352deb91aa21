#include <ATen/ops/zeros.h>
#include <lockstep/amp/autocast.h>
#include <lockstep/amp/flat_kernels.h>
#include <lockstep/runtime/as_error.h>
#include <lockstep/runtime/replicas.h>
#include <lockstep/runtime/step.h>

#include <chrono>
#include <cmath>

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void require_scalar_with_grad(const at::Tensor& loss) {
  LOCKSTEP_CHECK(loss.defined(), "the closure returned an undefined loss");
  LOCKSTEP_CHECK(loss.numel() == 1, "the loss must have one element, has sizes ", loss.sizes(),
                 "; reduce it with mean(), or use Loss::sum(total, weight)");
  LOCKSTEP_CHECK(loss.is_floating_point(), "the loss must be floating point, is ",
                 loss.scalar_type());
  LOCKSTEP_CHECK(loss.requires_grad(),
                 "the loss does not depend on a trainable parameter: it was computed under "
                 "no_grad, detached, or from frozen parameters only");
}

}  // namespace

Step::Step(StepParts parts) : parts_(std::move(parts)) {}

void Step::micro_batch(const std::function<Loss()>& closure, bool under_autocast) {
  require_budget();
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
  compute_seconds_ += seconds_since(start);
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
  const Loss loss = under_autocast ? this->under_autocast(closure) : closure();
  require_scalar_with_grad(loss.tensor());
  LOCKSTEP_CHECK(kind_is_sum_.value_or(is_sum_.value_or(loss.is_sum())) == loss.is_sum(),
                 "this loss is ", loss.is_sum() ? "a Loss::sum" : "a mean",
                 ", the earlier ones were not; use one kind throughout");
  is_sum_ = loss.is_sum();
  last_loss_ = loss.tensor().detach().to(at::kDouble).item<double>() /
               (loss.is_sum() && loss.weight() > 0 ? loss.weight() : 1.0);
  LOCKSTEP_CHECK_CODE(updates_ > 0 || !std::isnan(last_loss_), ExitCode::non_finite,
                      "the loss is NaN before the first update: the data or the model is faulty, "
                      "no loss scale can cure it");
  ++with_data_;
  weight_ += loss.weight();
  return loss;
}

void Step::empty_micro_batch() {
  require_budget();
  attempt([&] {
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
  parts_.reducer.synchronise(packing_factor(), parts_.scaler.value());
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

StepReport Step::close_window() {
  StepReport report = report_open_window();
  report.closes_update_ = true;
  const auto arrival = Clock::now();
  parts_.reducer.launch_rest();
  const UnusedParameters policy =
      with_data_ > 0 ? parts_.options.unused() : UnusedParameters::zeros;
  if (const auto problem = window_problem(parts_.reducer, parts_.trainable, policy)) {
    fail(std::make_exception_ptr(*problem));
  }
  const Arrived arrived = wait_and_measure();
  Word mine = word();
  mine.overflow = arrived.finite ? 0 : 1;
  const Word all = parts_.agreement.exchange(mine);
  if (all.error > 0) {
    fail_elsewhere();
  }
  stop_everywhere_ = stop_everywhere_ || all.stop > 0;
  saved_everywhere_ = all.saved == parts_.communicator.size();
  report.all_out_of_data_ = parts_.options.uneven_data() && all.data == 0;
  const bool nothing_counted = weighted() && all.weight == 0;
  report.skipped_ = all.overflow > 0;
  report.communication_seconds_ = seconds_since(arrival);

  const auto update_start = Clock::now();
  if (!nothing_counted) {
    if (!report.skipped_) {
      update_weights(arrived, report);
      ++updates_;
    }
    parts_.scaler.update(report.skipped_);
    diagnose(all, report.scale_);
    synchronise_buffers(parts_.buffers, parts_.options.buffers(), parts_.communicator);
  }
  report.update_ = updates_;
  report.update_seconds_ = seconds_since(update_start);
  end_window();
  return report;
}

void Step::diagnose(const Word& all, double scale) {
  if (parts_.diagnosis.armed()) {
    if (all.overflow > 0) {
      parts_.diagnosis.conclude(parts_.reducer, parts_.agreement, updates_, scale);
    } else {
      parts_.diagnosis.forget();
    }
  }
  const amp::ScalerState state = parts_.scaler.state();
  const int64_t budget = parts_.scaler.options().max_consecutive_skips();
  const int64_t chosen = parts_.options.diagnose_after_skips();
  const int64_t after = chosen > 0 ? chosen : budget - 1;
  if (all.diagnose > 0 || (after > 0 && state.consecutive_skips == after)) {
    parts_.diagnosis.arm();
  }
  diagnose_here_ = false;
}

Step::Arrived Step::wait_and_measure() {
  const at::Tensor totals =
      at::zeros({2}, at::TensorOptions().dtype(at::kDouble).device(parts_.device));
  for (size_t b = 0; b < parts_.reducer.size(); ++b) {
    parts_.reducer.wait(b);
    amp::measure_into(parts_.reducer.wire(b), totals);
  }
  const at::Tensor host = totals.cpu();
  const double* sums = host.const_data_ptr<double>();
  return {sums[1] == 0.0, sums[0]};
}

/// Only after consensus: everything that moves, moves here.
void Step::update_weights(const Arrived& arrived, StepReport& report) {
  report.grad_norm_ = std::sqrt(arrived.sum_squares) / report.scale_;
  const double clip = std::min(1.0, parts_.options.clip_grad_norm() / (report.grad_norm_ + 1e-6));
  amp::StepState state;
  state.gradient_factor = amp::gradient_factor(report.scale_, clip);
  state.gradient_limit = static_cast<float>(parts_.options.clip_grad_value());
  state.learning_rate_factor = parts_.options.schedule().factor(updates_);
  state.update = updates_ + 1;
  std::vector<char> used;
  if (parts_.options.unused() == UnusedParameters::detect) {
    used = used_anywhere(parts_.reducer, parts_.agreement.communicator());
  }
  parts_.updater.apply(parts_.reducer, state, used);
  parts_.reducer.keep_residuals();
}

StepReport Step::report_open_window() {
  StepReport report;
  report.update_ = updates_;
  report.micro_batch_ = micro_batches_;
  report.loss_ = last_loss_;
  report.scale_ = parts_.scaler.value();
  report.grad_norm_ = std::nan("");
  report.learning_rate_ = parts_.learning_rate * parts_.options.schedule().factor(updates_);
  report.compute_seconds_ = compute_seconds_;
  return report;
}

Word Step::word() const {
  Word mine;
  mine.stop = stop_here_.load(std::memory_order_relaxed) ? 1 : 0;
  mine.saved = saved_here_ ? 1 : 0;
  mine.data = static_cast<double>(with_data_);
  mine.weight = weight_;
  mine.sums = is_sum_.value_or(false) ? 1 : 0;
  mine.means = is_sum_.value_or(true) ? 0 : 1;
  mine.diagnose = diagnose_here_ ? 1 : 0;
  mine.update = static_cast<double>(updates_);
  mine.update_squared = mine.update * mine.update;
  return mine;
}

/// Where memory or the device is the reason, every rank gets the same Error.
void Step::fail(const std::exception_ptr& error) {
  const Error mine = as_error(error);
  try {
    tell_of_failure();
  } catch (const CommunicationError&) {
    throw;
  } catch (const std::exception& second) {
    throw CommunicationError(c10::str("rank ", parts_.communicator.rank(), ": ", mine.what(),
                                      "; and then the buckets could not be sent: ", second.what(),
                                      "; restart from the last snapshot"));
  }
  if (mine.code() == ExitCode::out_of_memory) {
    parts_.agreement.raise(Error(c10::str("out of memory in micro-batch ", micro_batches_, ": ",
                                          mine.what(), "\n", parts_.out_of_memory_advice()),
                                 mine.code()));
  }
  if (mine.code() == ExitCode::peer_lost) {
    parts_.agreement.raise(
        Error(c10::str("the device failed: ", mine.what(), "; restart from the last snapshot"),
              mine.code()));
  }
  parts_.agreement.raise(error);
}

/// This rank still sends its buckets and its word at the places where the others do, so that they
/// hear of it.
void Step::tell_of_failure() {
  const bool others_exchange_first = agrees_first() && !weights_everywhere_.has_value();
  if (!others_exchange_first) {
    parts_.reducer.drain();
  }
  Word mine = word();
  mine.error = 1;
  parts_.agreement.exchange(mine);
  end_window();
}

/// Another rank failed, says the word.
void Step::fail_elsewhere() {
  end_window();
  parts_.agreement.raise(std::nullopt);
}

void Step::abandon() {
  parts_.reducer.drain();
  end_window();
}

void Step::end_window() {
  parts_.reducer.reset();
  count_ = 0;
  with_data_ = 0;
  weight_ = 0.0;
  is_sum_.reset();
  weights_everywhere_.reset();
  compute_seconds_ = 0.0;
  weight_casts_.reset();
}

void Step::visit_state(StateArchive& archive) {
  int64_t kind = kind_is_sum_.has_value() ? static_cast<int64_t>(*kind_is_sum_) : -1;
  archive.number("updates", updates_);
  archive.number("micro_batches", micro_batches_);
  archive.number("loss_is_sum", kind);
  if (archive.loading()) {
    kind_is_sum_ = kind < 0 ? std::nullopt : std::make_optional(kind != 0);
  }
}

void Step::require_budget() {
  if (count_ > 0) {
    return;
  }
  try {
    amp::check_skip_budget(parts_.scaler.options(), parts_.scaler.state());
  } catch (const Error& error) {
    const std::string& diagnosis = parts_.diagnosis.text();
    throw Error(diagnosis.empty() ? error.what() : c10::str(error.what(), "\n", diagnosis),
                error.code());
  }
}

}  // namespace lockstep
