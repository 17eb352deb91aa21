#include <ATen/ops/empty_like.h>
#include <lockstep/amp/impl/flat_kernels.h>
#include <lockstep/checkpointing/activation/impl/rng_state.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/activity.h>
#include <lockstep/collectives/impl/as_error.h>
#include <lockstep/collectives/impl/device_watch.h>
#include <lockstep/collectives/impl/seconds_since.h>
#include <lockstep/runtime/step/impl/span.h>
#include <lockstep/runtime/step/impl/step.h>

#include <chrono>

namespace lockstep::detail {
namespace {

using Clock = std::chrono::steady_clock;

/// Not where the host learns of a window's end only later, or gradients travel in another way.
bool leave_together(const StepParts& parts) {
  const auto devices = closure_calls(parts.communicator);
  return devices && devices->can_meet() &&
         devices == closure_calls(parts.agreement.communicator()) &&
         parts.host_acts == HostActs::at_once;
}

amp::DecisionRule decision_rule(const TrainerOptions& options) {
  return {amp::scaler_rule(options.precision().loss_scaler_options()), options.clip_grad_norm(),
          static_cast<float>(options.clip_grad_value()), options.schedule()};
}

}  // namespace

Step::Step(StepParts parts)
    : parts_(std::move(parts)),
      forward_backward_(parts_.options, parts_.device, parts_.scaler,
                        parts_.storage.trainable().parameters),
      loss_weights_(parts_.options.uneven_data(), parts_.options.accumulate(),
                    parts_.communicator.size(), parts_.options.reproducible()),
      decisions_(parts_.device, parts_.host_acts, decision_rule(parts_.options), parts_.scaler),
      measures_(parts_.communicator),
      consensus_(parts_.communicator, parts_.agreement, parts_.storage, parts_.host_acts),
      buffer_sync_(parts_.options.buffers(), parts_.communicator),
      leaves_(parts_.options, parts_.seed, parts_.communicator, parts_.buffers),
      skip_watch_(parts_.scaler.options(), parts_.options.diagnose_after_skips()),
      closure_calls_(closure_calls(parts_.agreement.communicator())),
      leave_together_(leave_together(parts_)),
      round_(closure_calls_ ? closure_calls_->round() : 0) {
  if (parts_.communicator.rank() == 0) {
    forward_backward_.watch_norms({parts_.storage.model(), parts_.options.precision()});
  }
}

/// The one order of an update. The hooks of the window's last backward have packed gradients and
/// started the all-reduce of each full bucket (Reducer). The numbers are those of
/// docs/architecture.md.
void Step::reduce_and_update(UpdateMode mode, const Votes& votes) {
  const bool device = mode != UpdateMode::launched;
  const bool host = mode != UpdateMode::captured;
  const auto start = Clock::now();
  update_seconds_ = 0.0;
  if (device) {
    parts_.storage.reducer().launch_rest();  // 2. the buckets that are not in flight yet
    require_complete(mode);
    if (mode != UpdateMode::captured) {
      parts_.storage.written().take();  // what the program wrote into weights
    }
    measure(mode);      // 3. each bucket: non-finite values, sum of squares
    measures_.share();  // 4. failures and losses of all ranks; with local updates overflows, too
  }
  if (host) {
    vote(mode, votes);  // 4. stop, error, data, replicas
  }
  communication_seconds_ = seconds_since(start);
  if (loss_weights_.nothing_counted() || (mode == UpdateMode::failed && decides_at_once())) {
    return;  // no rank had data, or the hosts know of the failure: nothing to decide
  }
  const auto update_start = Clock::now();
  if (device) {
    decisions_.decide();    // 4. update or skip, clip factor, learning rate
    apply();                // 5. optimizer, masters, weights; nothing on a skip
    decisions_.conclude();  // 6. the count of updates and the loss scale
    forward_backward_.scales().conclude(decisions_);
    leaves_.on() ? leaves_.merge_buffers() : buffer_sync_.run(parts_.buffers);
    parts_.storage.averaged_buffers().move(decisions_.step());
  }
  if (host) {
    amp::Autocast::clear_cache();  // a window of another Trainer may have cast these weights
    decisions_.publish();
    parts_.storage.arena().note_writes(!decides_at_once() || !decisions_.known().skipped);
    ++windows_;
    consensus_.forget_own_request();
    parts_.diagnosis.conclude_window(*decisions_.latest(), parts_.storage.reducer(),
                                     parts_.agreement);
  }
  update_seconds_ = seconds_since(update_start);
  if (LocalRounds* rounds = parts_.storage.rounds(); device && rounds != nullptr) {
    communication_seconds_ += rounds->end_update();
  }
}

/// Fails the window if a gradient is missing, or if a parameter left the optimizer's memory.
void Step::require_complete(UpdateMode mode) {
  if (mode == UpdateMode::failed) {
    return;
  }
  if (mode == UpdateMode::whole) {
    fail_on_error([&] { parts_.storage.updater().take_edited_rates(); });
  }
  const auto problem = parts_.storage.problem_of_window(
      loss_weights_.rank_has_data() ? parts_.options.unused() : UnusedParameters::zeros);
  if (problem && mode == UpdateMode::captured) {
    throw *problem;  // the ranks agree on it after the capture (CapturedSteps)
  }
  if (problem) {
    fail(std::make_exception_ptr(*problem));
  }
}

void Step::measure(UpdateMode mode) {
  decisions_.begin(forward_backward_.loss_sum());
  measures_.take(parts_.storage.reducer(), decisions_);
  forward_backward_.scales().share(parts_.communicator, decisions_);
  if (mode == UpdateMode::failed) {
    decisions_.mark_failed();
  }
}

/// The hosts' half of no. 4. All ranks act on the votes now if decisions are in host memory, else
/// when the next window begins.
void Step::vote(UpdateMode mode, const Votes& votes) {
  Votes mine = own_votes(votes);
  mine.error = mode == UpdateMode::failed ? 1 : 0;
  consensus_.post(mine, windows_);
  if (mode != UpdateMode::failed && decides_at_once()) {
    settle();
  }
}

Votes Step::own_votes(Votes votes) {
  votes.nan_loss = nan_loss_ ? 1 : 0;
  loss_weights_.add_to(votes);
  return consensus_.complete(votes, decisions_, windows_);
}

/// Runs `body`, which throws on all ranks or on none. An Error ends the window.
template <typename Body>
void Step::end_window_on_error(const Body& body) {
  try {
    body();
  } catch (const CommunicationError&) {
    throw;
  } catch (...) {
    end_window();
    throw;
  }
}

void Step::settle() {
  try {
    end_window_on_error([&] { consensus_.settle(); });
  } catch (const SharedError&) {
    end_round();
    throw;
  }
}

void Step::apply() {
  std::vector<char> used;
  if (parts_.options.unused() == UnusedParameters::detect) {
    used = used_anywhere(parts_.storage.reducer(), parts_.agreement.communicator());
  }
  end_window_on_error([&] {
    parts_.storage.updater().update(parts_.storage.reducer(), decisions_, used, parts_.agreement);
  });
}

void Step::begin_window() {
  if (leave_together_ && round_ != closure_calls_->round()) {
    end_window();  // a step of another Trainer has failed since
  }
  if (count_ > 0) {
    return;
  }
  settle();
  if (parts_.options.cuda_graph()) {
    parts_.storage.written().adopt();  // a graph, from forward to update, cannot do it
  }
  const amp::ScalerState& scaler = decisions_.known().scaler;
  skip_watch_.warn(scaler, parts_.communicator.rank() == 0);
  skip_watch_.require_budget(scaler, parts_.diagnosis.text(), parts_.diagnosis.ranks());
  if (consensus_.take_diagnosis() || skip_watch_.wants_diagnosis(scaler)) {
    parts_.diagnosis.arm();
  }
  if (parts_.options.schedule().kind == Schedule::Kind::function) {
    plan_learning_rate();
  }
}

void Step::plan_learning_rate() {  // a function may throw
  const Schedule schedule = follows_schedule_ ? parts_.options.schedule() : Schedule(Constant());
  const auto plan = [&] { decisions_.plan(schedule); };
  if (parts_.options.cuda_graph()) {
    parts_.agreement.attempt(plan);  // once a graph is launched there is no vote for an error
  } else {
    fail_on_error(plan);
  }
}

void Step::micro_batch(const std::function<Loss()>& closure, bool under_autocast) {
  fail_on_error([&] { parts_.storage.require_unchanged(count_ == 0); });
  fail_on_error([&] { leaves_.begin(decisions_.known(), count_); });
  if (parts_.diagnosis.armed() && under_autocast) {
    fail_on_error(
        [&] { forward_backward_.replay(closure, parts_.diagnosis, micro_batches_ + count_); });
  }
  forward_backward_.share_casts();
  const auto start = Clock::now();
  const auto random =
      before_first_update() ? std::optional(activation::RngState::current()) : std::nullopt;
  const Loss loss = fail_on_error([&] { return forward(closure, under_autocast); });
  prepare_backward();
  require_number([&] {
    if (under_autocast) {
      const activation::RngGuard same_numbers(*random);
      forward_backward_.drop_casts();  // so that observers see the casts of weights
      forward_backward_.replay(closure, parts_.diagnosis, micro_batches_ + count_);
    }
  });
  fail_on_error([&] { forward_backward_.backward(loss, parts_.storage.reducer()); });
  fail_on_error([&] { leaves_.end(decisions_.known(), count_); });
  note_activity("what follows micro-batch", micro_batches_ + count_++);
  compute_seconds_ += seconds_since(start);
}

void Step::empty_micro_batch() {
  fail_on_error([&] {
    parts_.storage.require_unchanged(count_ == 0);
    LOCKSTEP_CHECK(parts_.options.uneven_data(),
                   "step_without_data() needs TrainerOptions().uneven_data(true) on every rank");
  });
  prepare_backward();
  require_number([] {});
  ++count_;
}

StepReport Step::close_window(const Votes& votes) {
  reduce_and_update(UpdateMode::whole, votes);
  return report_closed_window();
}

bool Step::can_be_captured() const {
  LOCKSTEP_CHECK(!loss_weights_.are_sums(),
                 "cuda_graph: a Loss::sum is divided by a weight that the host must know before "
                 "backward; return a mean, or use cuda_graph(false)");
  return !exchanges_first();
}

void Step::capture_window(const std::function<Loss()>& closure, const at::Tensor& loss) {
  forward_backward_.share_casts();
  const Loss mine = forward(closure, /*under_autocast=*/true);
  loss.copy_(forward_backward_.last_loss());
  parts_.storage.written().require_unwritten();
  prepare_backward();
  forward_backward_.backward(mine, parts_.storage.reducer());
  reduce_and_update(UpdateMode::captured, {});
  end_window();
}

StepReport Step::launch_window(const std::function<void()>& launch, const at::Tensor& loss,
                               const Votes& votes) {
  const auto start = Clock::now();
  launch();
  loss_weights_.add(/*is_sum=*/false, /*weight=*/1.0);
  count_ = 1;
  forward_backward_.set_last_loss(loss.clone());
  compute_seconds_ = seconds_since(start);
  reduce_and_update(UpdateMode::launched, votes);
  return report_closed_window();
}

Loss Step::forward(const std::function<Loss()>& closure, bool under_autocast) {
  note_activity("forward of micro-batch", micro_batches_ + count_);
  Loss loss = forward_backward_.forward(closure, under_autocast);
  loss_weights_.add(loss.is_sum(), loss.weight());
  if (before_first_update()) {
    nan_loss_ = decisions_.note_loss(forward_backward_.last_loss()) || nan_loss_;
  }
  return loss;
}

void Step::prepare_backward() {
  note_activity("backward of micro-batch", micro_batches_ + count_);
  if (count_ + 1 < parts_.options.accumulate()) {
    parts_.storage.reducer().collect();
    return;
  }
  if (exchanges_first()) {
    exchange_votes();
  }
  parts_.storage.reducer().synchronise(loss_weights_.packing_factor());
}

/// For the global weight and NaN losses. Gradients are not packed yet, so no bucket is in flight.
void Step::exchange_votes() {
  exchanged_ = exchange(parts_.agreement, own_votes({}));
  end_window_on_error([&] {
    if (exchanged_->error > 0) {
      end_round();
      parts_.agreement.raise(std::nullopt);
    }
    loss_weights_.take(*exchanged_);
  });
}

/// A NaN loss before the first update is an Error on all ranks, on a device two windows later: no
/// scale cures it, and nothing is learnt yet. All ranks run the closure of the micro-batch again,
/// because a forward may communicate; those with a NaN loss say where it comes from.
void Step::require_number(const std::function<void()>& replay) {
  if (!exchanged_.has_value() || exchanged_->nan_loss == 0) {
    return;
  }
  const std::string found = parts_.diagnosis.of_first_loss(replay, parts_.communicator.rank());
  try {
    if (nan_loss_) {
      fail(std::make_exception_ptr(
          Error("the loss is NaN before the first update: " + found, ExitCode::non_finite)));
    }
    fail_with_others();
  } catch (const Error& error) {
    parts_.diagnosis.note(error.what());
    throw;
  }
}

StepReport Step::report_open_window() const {
  StepReport report;
  report.micro_batch_ = micro_batches_ + count_;
  report.decision_ = decisions_.latest();
  report.loss_ = forward_backward_.last_loss();
  report.base_learning_rate_ = parts_.storage.updater().learning_rates().of(0);
  report.schedule_ = parts_.options.schedule();
  report.compute_seconds_ = compute_seconds_;
  return report;
}

StepReport Step::report_closed_window() {
  StepReport report = report_open_window();
  report.closes_update_ = true;
  report.weight_ = loss_weights_.weight_of_window();
  report.all_out_of_data_ = parts_.options.uneven_data() && exchanged_->data == 0;
  report.communication_seconds_ = communication_seconds_;
  report.update_seconds_ = update_seconds_;
  micro_batches_ += count_;
  end_window();
  return report;
}

/// Runs `body`, which may throw on some ranks only: the rank leaves the window, or its failure
/// travels in the collectives of the window; then every rank throws the same Error.
template <typename Body>
auto Step::fail_on_error(const Body& body) -> decltype(body()) {
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

/// Every rank throws the same Error; on this rank its own exception is nested in it.
void Step::fail(const std::exception_ptr& error) {
  if (leave_together_) {
    meet(error);
  }
  follow_peers();
  const Error mine = as_error(error);
  const int64_t micro_batch = micro_batches_ + count_;
  if (closure_calls_) {
    closure_calls_->tell_peers(mine, closure_calls(parts_.communicator).value_or(*closure_calls_));
  }
  try {
    tell_of_failure();
  } catch (const std::exception& second) {  // such as a peer in a collective of its closure
    leave_because(std::make_exception_ptr(mine));
    throw CommunicationError(c10::str("rank ", parts_.communicator.rank(), ": ", mine.what(),
                                      "; and then the buckets could not be sent: ", second.what(),
                                      "; restart from the last snapshot"),
                             mine.code());
  }
  end_round();
  parts_.agreement.raise(parts_.storage.explained(mine, micro_batch), error);
}

/// On a rank that knows that another one fails.
void Step::fail_with_others() {
  if (leave_together_) {
    meet(nullptr);
  }
  tell_of_failure();
  end_round();
  parts_.agreement.raise(std::nullopt);
}

void Step::end_round() {
  if (closure_calls_ && !leave_together_) {
    closure_calls_->end_round();
  }
}

/// This rank makes no further call of the window. Its peers hear of it wherever they wait.
void Step::meet(const std::exception_ptr& error) {
  std::optional<Error> mine;
  if (error != nullptr && !closure_calls_->is_away()) {  // else the error follows a peer's
    mine = parts_.storage.explained(as_error(error), micro_batches_ + count_);
  }
  const SharedError shared = closure_calls_->meet(mine);
  end_window();
  if (!mine) {
    throw SharedError(shared);
  }
  try {
    std::rethrow_exception(error);
  } catch (...) {
    std::throw_with_nested(shared);
  }
}

void Step::follow_peers() {
  if (!closure_calls_ || !closure_calls_->is_away()) {
    return;
  }
  if (!leave_together_) {
    throw CommunicationError(closure_calls_->left_behind());
  }
  meet(nullptr);
}

/// Joins the collective that the other ranks call next, with a vote for an error.
void Step::tell_of_failure() {
  if (exchanges_first() && !exchanged_.has_value()) {
    Votes mine = own_votes({});
    mine.error = 1;
    exchange(parts_.agreement, mine);
  } else {
    reduce_and_update(UpdateMode::failed, {});
    consensus_.discard();
  }
  end_window();
}

void Step::abandon() {
  settle();
  parts_.storage.reducer().drain();
  end_window();
}

void Step::end_window() {
  parts_.storage.reducer().reset();
  count_ = 0;
  nan_loss_ = false;
  exchanged_.reset();
  compute_seconds_ = 0.0;
  loss_weights_.begin_window();
  forward_backward_.end_window();
  seed_leaves();
  round_ = closure_calls_ ? closure_calls_->round() : 0;
}

void Step::visit_state(StateArchive& archive) {
  archive.number("micro_batches", micro_batches_);
  loss_weights_.visit_state(archive);
  parts_.storage.updater().visit_rates(archive);
  decisions_.visit_state(archive);
  if (archive.loading()) {
    windows_ = updates();
  }
}

}  // namespace lockstep::detail
