#include <lockstep/collectives/device/staged_step.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/backoff.h>

#include <algorithm>

namespace lockstep::detail {
namespace {

/// How many steps may be copied to the host or summed at a time.
constexpr size_t kAhead = 6;

}  // namespace

uint64_t StagedPipeline::add(StagedStep step) {
  down_->follow_current();
  steps_.push_back({std::move(step), Stage::waiting, nullptr, Work(), Clock::now()});
  const uint64_t number = first_ + steps_.size() - 1;
  advance();
  return number;
}

void StagedPipeline::advance() {
  guarded([&] {
    host_.progress();
    while (move_once()) {
    }
  });
}

std::shared_ptr<LaneMark> StagedPipeline::mark_of(uint64_t number) const {
  if (number < first_) {
    return nullptr;
  }
  const Running& running = steps_[static_cast<size_t>(number - first_)];
  return running.stage == Stage::going_up ? running.mark : nullptr;
}

std::shared_ptr<LaneMark> StagedPipeline::wait_for(uint64_t number) {
  Backoff backoff(/*crowded=*/true);
  advance();
  while (number >= first_ && mark_of(number) == nullptr) {
    guarded([&] {
      Running& oldest = *std::find_if(steps_.begin(), steps_.end(), [](const Running& running) {
        return running.stage != Stage::going_up;
      });
      if (oldest.stage == Stage::summing) {
        oldest.work.wait();
        return;
      }
      const std::chrono::duration<double> age = Clock::now() - oldest.since;
      if (age > timeout_) {
        throw CommunicationError(c10::str(
            "rank ", host_.rank(), " of ", host_.size(), ": the device has not copied a tensor to ",
            "the host within ", age.count(), " s: it is stuck; restart from the last snapshot"));
      }
      backoff.pause();
    });
    advance();
  }
  return mark_of(number);
}

bool StagedPipeline::move_once() {
  bool moved = false;
  bool all_before_sum = true;
  bool all_before_rise = true;
  size_t ahead = 0;
  for (Running& running : steps_) {
    if (running.stage == Stage::going_up) {
      continue;
    }
    if (++ahead > kAhead) {
      break;
    }
    moved = move(running, all_before_sum, all_before_rise) || moved;
    all_before_sum = all_before_sum && running.stage >= Stage::summing;
    all_before_rise = all_before_rise && running.stage == Stage::going_up;
  }
  while (!steps_.empty() && steps_.front().stage == Stage::going_up &&
         steps_.front().mark->passed()) {
    steps_.pop_front();
    ++first_;
    moved = true;
  }
  return moved;
}

/// Moves to the next stage if it need not wait. `may_sum`: all earlier collectives were issued.
/// `may_rise`: the results of all earlier ones are on their way up, so that the mark after this one
/// is after theirs.
bool StagedPipeline::move(Running& running, bool may_sum, bool may_rise) {
  switch (running.stage) {
    case Stage::waiting:
      start(running);
      return true;
    case Stage::coming_down:
      if (!may_sum || !running.mark->passed()) {
        return false;
      }
      running.work = running.step.collective(host_);
      running.stage = Stage::summing;
      return true;
    case Stage::summing:
      if (!may_rise || !running.work.test()) {
        return false;
      }
      raise(running);
      return true;
    case Stage::going_up:
      return false;
  }
  return false;
}

void StagedPipeline::start(Running& running) {
  for (const StagedStep::Copy& copy : running.step.down) {
    down_->copy(copy.host, copy.device);
    down_->protect(copy.device);
  }
  running.mark = down_->mark();
  running.stage = Stage::coming_down;
}

void StagedPipeline::raise(Running& running) {
  for (const StagedStep::Copy& copy : running.step.up) {
    up_->copy(copy.device, copy.host);
    up_->protect(copy.device);
  }
  running.mark = up_->mark();
  running.stage = Stage::going_up;
}

template <typename Body>
void StagedPipeline::guarded(const Body& body) {
  if (failure_ == nullptr) {
    try {
      body();
      return;
    } catch (...) {
      failure_ = std::current_exception();
    }
  }
  std::rethrow_exception(failure_);
}

}  // namespace lockstep::detail
