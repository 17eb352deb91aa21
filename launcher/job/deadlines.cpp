#include "job/deadlines.h"

#include <lockstep/collectives/impl/rank_names.h>
#include <sys/resource.h>

#include <algorithm>

namespace lockstep::launcher {
namespace {

using Stage = LifeSigns::Stage;
using detail::rank_names;
using std::chrono::seconds;

std::string have(const std::vector<int>& ranks) {
  return rank_names(ranks) + (ranks.size() == 1 ? " has" : " have");
}

/// Open MPI's mpirun opens some 30 files and 4 for each rank; with fewer it waits for ever. Empty:
/// there are enough.
std::string low_limit_of_files(int ranks) {
  rlimit limit = {};
  const rlim_t enough = 64 + 8 * static_cast<rlim_t>(ranks);
  return getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= enough
             ? ""
             : "the limit of open files is " + std::to_string(limit.rlim_cur) +
                   ", which may be too low for it: ulimit -n " + std::to_string(enough);
}

}  // namespace

/// Ranks that mpirun has not started; else ranks without a runtime while others make or have one.
std::optional<Deadlines::Wait> Deadlines::start_wait(const RankTable& ranks, int limit_seconds) {
  const auto missing = ranks.where(
      [](const RankRecord& record) { return record.wrapper == 0 && !record.has_ended(); });
  if (!missing.empty()) {
    return Wait{missing, "not been started by mpirun", low_limit_of_files(ranks.size()),
                "--start-timeout", limit_seconds};
  }
  const auto late = ranks.where([](const RankRecord& record) {
    return record.signs.stage() == Stage::none && !record.has_ended();
  });
  const auto waiting = ranks.where([](const RankRecord& record) {
    return record.signs.stage() == Stage::starting && !record.has_ended();
  });
  if (late.empty() || waiting.empty()) {
    return std::nullopt;
  }
  return Wait{late, "not made " + std::string(late.size() == 1 ? "its" : "their") + " runtime",
              rank_names(waiting) + (waiting.size() == 1 ? " waits" : " wait"), "--start-timeout",
              limit_seconds};
}

/// Ranks that still train, or whose process still runs, while others have ended.
std::optional<Deadlines::Wait> Deadlines::end_wait(const RankTable& ranks, int limit_seconds) {
  const auto done = ranks.where([](const RankRecord& record) {
    return record.signs.stage() >= Stage::leaving || (record.has_ended() && *record.code == 0);
  });
  const auto training = ranks.where([](const RankRecord& record) {
    return record.signs.stage() < Stage::leaving && !record.has_ended();
  });
  const auto running = ranks.where([](const RankRecord& record) { return !record.has_ended(); });
  const bool gives_signs =
      !ranks.where([](const RankRecord& record) { return record.signs.stage() != Stage::none; })
           .empty();
  if (done.empty() || running.empty() || !gives_signs) {
    return std::nullopt;
  }
  if (!training.empty()) {
    return Wait{
        training, "not left " + std::string(training.size() == 1 ? "its" : "their") + " runtime",
        rank_names(done) + (done.size() == 1 ? " has" : " have"), "--end-timeout", limit_seconds};
  }
  return Wait{running,
              "left, but " +
                  std::string(running.size() == 1 ? "its process has" : "their processes have") +
                  " not ended",
              "", "--end-timeout", limit_seconds};
}

void Deadlines::begin_again() {
  wait_.reset();
  not_before_ = Clock::now();
}

std::optional<Deadlines::Finding> Deadlines::look(const RankTable& ranks) {
  next_.reset();
  auto wait = start_wait(ranks, options_.start_timeout_seconds);
  wait = wait ? wait : end_wait(ranks, options_.end_timeout_seconds);
  if (!wait) {
    wait_.reset();
    return std::nullopt;
  }
  if (!wait_ || !(*wait_ == *wait)) {
    wait_ = wait;
    since_ = std::max(ranks.last_change(), not_before_);
    say_after_ = options_.report_seconds;
  }
  const auto waited = std::chrono::duration_cast<seconds>(Clock::now() - since_).count();
  const int limit = wait->limit_seconds;
  const bool is_overdue = limit > 0 && waited >= limit;
  std::optional<Finding> finding;
  if (is_overdue || waited >= say_after_) {
    std::string text =
        have(wait->late) + " " + wait->what + " for " + std::to_string(waited) + " s";
    if (!wait->others.empty()) {
      text += "; " + wait->others;
    }
    finding = Finding{is_overdue ? text + " (" + wait->option + ")" : text, is_overdue, wait->late};
    say_after_ = static_cast<int>(std::max<int64_t>(1, 2 * waited));
  }
  if (!is_overdue) {
    const int at = limit > 0 ? std::min(limit, say_after_) : say_after_;
    next_ = since_ + seconds(at);
  }
  return finding;
}

}  // namespace lockstep::launcher
