// The end of a window: measuring, consensus, update, and how a failure reaches all ranks.
#include <lockstep/amp/autocast.h>
#include <lockstep/amp/flat_kernels.h>
#include <lockstep/collectives/as_error.h>
#include <lockstep/runtime/replicas.h>
#include <lockstep/runtime/step.h>

#include <chrono>
#include <sstream>

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

StepReport Step::close_window() {
  const auto arrival = Clock::now();
  parts_.reducer.launch_rest();
  take_edited_rates();
  const UnusedParameters policy =
      with_data_ > 0 ? parts_.options.unused() : UnusedParameters::zeros;
  if (const auto problem = window_problem(parts_.reducer, parts_.trainable, policy)) {
    fail(std::make_exception_ptr(*problem));
  }
  if (const auto left = parts_.watch->departure()) {
    fail(std::make_exception_ptr(*left));
  }
  if (const auto all = share(/*failed=*/false)) {
    heed(*all);
  }
  const double communication_seconds = seconds_since(arrival);

  const auto update_start = Clock::now();
  const bool decides = !nothing_counted();
  if (decides) {
    update();
    conclude_diagnosis();
  }
  StepReport report = report_open_window();
  report.closes_update_ = true;
  report.decided_ = decides;
  report.all_out_of_data_ = parts_.options.uneven_data() && weights_everywhere_->data == 0;
  report.communication_seconds_ = communication_seconds;
  report.update_seconds_ = seconds_since(update_start);
  end_window();
  return report;
}

/// Step 3: each arrived bucket.
void Step::measure() {
  decisions_.begin();
  for (size_t b = 0; b < parts_.reducer.size(); ++b) {
    parts_.reducer.wait(b);
    amp::measure_into(parts_.reducer.wire(b), decisions_.totals());
  }
}

/// Steps 3 and 4: the ranks share what they saw.
std::optional<Word> Step::share(bool failed) {
  measure();
  loss_scales_.share(parts_.communicator, decisions_);
  if (failed) {
    decisions_.mark_failed();
  }
  Word mine = word();
  mine.error = failed ? 1 : 0;
  parts_.replicas->add_to(mine, windows_);
  return consensus_.share(mine, decisions_);
}

/// What the ranks' hosts said.
void Step::heed(const Word& all) {
  if (all.error > 0) {
    fail_elsewhere();
  }
  require_same_rates(all);
  if (parts_.replicas->differ(all)) {
    end_window();
    parts_.replicas->raise();
  }
  stop_everywhere_ = stop_everywhere_ || all.stop > 0;
  saved_everywhere_ = all.saved == parts_.communicator.size();
  diagnose_everywhere_ = diagnose_everywhere_ || all.diagnose > 0;
}

/// 16 bits, whose squares are summed without rounding; other ones in each window.
double Step::digest_of_rates() {
  told_rates_ = parts_.updater->learning_rates().all();
  for (const float factor : decisions_.planned().factors) {
    told_rates_.push_back(factor);
  }
  const uint64_t digest = digest_of(told_rates_.data(), told_rates_.size() * sizeof(double),
                                    static_cast<uint64_t>(windows_));
  return static_cast<double>(digest & 0xffffU);
}

void Step::require_same_rates(const Word& all) {
  if (all.rates * all.rates == all.rates_squared * parts_.communicator.size()) {
    return;
  }
  end_window();
  std::ostringstream mine;
  mine.precision(17);
  for (size_t i = 0; i < told_rates_.size(); ++i) {
    mine << (i + 2 == told_rates_.size() ? "times the schedule's " : "") << told_rates_[i] << ' ';
  }
  const bool late = parts_.host_acts == HostActs::one_window_late;
  require_same_text(late ? "the learning rate of the last update, which was made (resume from a "
                           "snapshot before it),"
                         : "the learning rate (Trainer::set_learning_rate, reduce_on_plateau, a "
                           "ScheduleFunction, options of a torch::optim optimizer)",
                    mine.str(), parts_.agreement);
}

void Step::settle() {
  if (const auto all = consensus_.settle()) {
    heed(*all);
  }
}

/// Only after consensus.
void Step::update() {
  move_everything();
  conclude_on_host();
}

/// After the device was given its work.
void Step::conclude_on_host() {
  amp::Autocast::clear_cache();  // the window of another Trainer may have cast these weights
  decisions_.publish();
  ++windows_;
  diagnose_here_ = false;
}

/// Steps 5 and 6: the device's work, none of which asks the host whether it may move something.
void Step::move_everything() {
  decisions_.decide();
  std::vector<char> used;
  if (parts_.options.unused() == UnusedParameters::detect) {
    used = used_anywhere(parts_.reducer, parts_.agreement.communicator());
  }
  parts_.updater->apply(parts_.reducer, decisions_, used);
  decisions_.conclude();
  loss_scales_.conclude(decisions_);
  synchronise_buffers(parts_.buffers, parts_.options.buffers(), parts_.communicator);
}

/// Reads the decision at once: replays cost far more than waiting for it.
void Step::conclude_diagnosis() {
  if (!parts_.diagnosis.armed()) {
    return;
  }
  const amp::Decision& decision = decisions_.latest()->read();
  if (decision.skipped && !(decision.failed > 0)) {
    parts_.diagnosis.conclude(parts_.reducer, parts_.agreement, decision.updates, decision.scale);
  } else {
    parts_.diagnosis.forget();
  }
}

Word Step::word() {
  Word mine;
  const bool signalled = stop_signals_ && stop_signals_->came();
  mine.stop = signalled || stop_here_.load(std::memory_order_relaxed) ? 1 : 0;
  mine.saved = saved_here_ ? 1 : 0;
  mine.data = static_cast<double>(with_data_);
  mine.weight = weight_;
  mine.sums = is_sum_.value_or(false) ? 1 : 0;
  mine.means = is_sum_.value_or(true) ? 0 : 1;
  mine.diagnose = diagnose_here_ ? 1 : 0;
  mine.rates = digest_of_rates();
  mine.rates_squared = mine.rates * mine.rates;
  mine.nan_loss = nan_loss_ ? 1 : 0;
  mine.update = static_cast<double>(windows_);
  mine.update_squared = mine.update * mine.update;
  return mine;
}

/// Every rank throws the same Error; this rank's has its exception nested in it.
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
  std::string text = mine.what();
  if (mine.code() == ExitCode::out_of_memory) {
    text = c10::str("out of memory in micro-batch ", micro_batches_, ": ", text, "\n",
                    parts_.out_of_memory_advice());
  } else if (mine.code() == ExitCode::peer_lost) {
    text = c10::str("the device failed: ", text, "; restart from the last snapshot");
  }
  parts_.agreement.raise(Error(text, mine.code()), error);
}

/// This rank still sends its buckets and its word at the places where the others do, so that they
/// hear of it. Where their hosts do not hear at once, it goes through the update with them, which
/// moves nothing.
void Step::tell_of_failure() {
  if (agrees_first() && !weights_everywhere_.has_value()) {
    Word mine = word();
    mine.error = 1;
    parts_.agreement.exchange(mine);
  } else {
    parts_.reducer.drain();
    if (!share(/*failed=*/true)) {
      update();
      consensus_.settle();
    }
  }
  end_window();
}

/// Another rank failed, says the word.
void Step::fail_elsewhere() {
  end_window();
  parts_.agreement.raise(std::nullopt);
}

void Step::abandon() {
  settle();
  parts_.reducer.drain();
  end_window();
}

void Step::end_window() {
  parts_.reducer.reset();
  count_ = 0;
  with_data_ = 0;
  weight_ = 0.0;
  nan_loss_ = false;
  is_sum_.reset();
  weights_everywhere_.reset();
  compute_seconds_ = 0.0;
  loss_scales_.begin();
  weight_casts_.reset();
}

}  // namespace lockstep
