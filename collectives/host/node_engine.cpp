#include <lockstep/collectives/host/node_engine.h>

#include <lockstep/collectives/core/call_mismatch.h>

#include <algorithm>
#include <cstdio>

namespace lockstep::detail {
namespace {

/// So far may a rank run ahead of its own oldest unfinished call: half of what the group keeps.
constexpr uint64_t kCallsAhead = NodeGroup::kCallsKept / 2;

}  // namespace

class NodeEngine::Pending final : public Operation {
 public:
  Pending(std::shared_ptr<NodeEngine> engine, const CollectiveCall& call,
          std::unique_ptr<CollectiveStep> step, std::array<at::Tensor, 2> tensors)
      : call(call),
        step(std::move(step)),
        engine_(std::move(engine)),
        tensors_(std::move(tensors)) {}

  bool test() override {
    if (!done) {
      engine_->advance();
    }
    return done;
  }
  void wait() override {
    if (!done) {
      engine_->wait_for(*this);
    }
  }
  void complete() {
    done = true;
    step.reset();
    tensors_ = {};
  }
  bool has_begun() const { return posted > 0; }

  const CollectiveCall call;
  std::unique_ptr<CollectiveStep> step;
  uint64_t first_tick = 0;
  uint64_t first_staged = 0;
  uint64_t after = 0;  // the sequence number of the last call on the same memory
  int64_t posted = 0;  // chunks
  int64_t reduced = 0;
  int64_t finished = 0;
  bool agreed = false;
  bool done = false;

  uint64_t tick(int64_t chunk) const { return first_tick + static_cast<uint64_t>(chunk); }
  uint64_t staged_index(int64_t chunk) const { return first_staged + static_cast<uint64_t>(chunk); }
  int slot(int64_t chunk) const {
    return static_cast<int>(staged_index(chunk) % NodeGroup::kSlots);
  }

 private:
  std::shared_ptr<NodeEngine> engine_;
  std::array<at::Tensor, 2> tensors_;
};

NodeEngine::NodeEngine(World world, std::unique_ptr<NodeGroup> group, CommunicatorOptions options,
                       std::unique_ptr<InterNode> inter_node)
    : world_(std::move(world)),
      group_(std::move(group)),
      options_(options),
      inter_node_(std::move(inter_node)) {}

std::shared_ptr<Operation> NodeEngine::issue(CollectiveCall call,
                                             std::unique_ptr<CollectiveStep> step,
                                             std::array<at::Tensor, 2> tensors) {
  throw_if_failed();
  log_.issue(call);
  auto operation =
      std::make_shared<Pending>(shared_from_this(), call, std::move(step), std::move(tensors));
  operation->first_tick = next_tick_;
  next_tick_ += static_cast<uint64_t>(operation->step->chunks());
  if (operation->step->staged()) {
    operation->first_staged = staged_issued_;
    staged_issued_ += static_cast<uint64_t>(operation->step->chunks());
  }
  for (const auto& earlier : pending_) {
    if (earlier->step->overlaps(*operation->step)) {
      operation->after = earlier->call.sequence;
    }
  }
  pending_.push_back(operation);
  advance();
  return operation;
}

void NodeEngine::run(CollectiveCall call, std::unique_ptr<CollectiveStep> step) {
  issue(call, std::move(step), {})->wait();
}

void NodeEngine::advance() {
  throw_if_failed();
  while (!pending_.empty() && move_once()) {
  }
}

void NodeEngine::drain() {
  while (!pending_.empty()) {
    const auto last = pending_.back();
    wait_for(*last);
  }
}

void NodeEngine::close() noexcept {
  if (failure_ == nullptr && std::uncaught_exceptions() == 0) {
    try {
      drain();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "lockstep: while closing a communicator: %s\n", error.what());
    }
  }
  group_->leave();
  if (failure_ == nullptr) {
    failure_ = std::make_exception_ptr(CommunicationError(
        c10::str("rank ", world_.rank, " of ", world_.size,
                 ": this communicator was destroyed before its collectives were complete")));
  }
  pending_.clear();
}

void NodeEngine::throw_if_failed() const {
  if (failure_ != nullptr) {
    std::rethrow_exception(failure_);
  }
}

bool NodeEngine::move_once() {
  try {
    const bool posted = post_next();
    const bool reduced = reduce_next();
    const bool finished = finish_next();
    if (inter_node_ != nullptr && !reduced) {
      inter_node_->progress();
    }
    return posted || reduced || finished;
  } catch (...) {
    fail(std::current_exception());
  }
}

bool NodeEngine::post_next() {
  if (to_post_ == pending_.size()) {
    return false;
  }
  Pending& operation = *pending_[to_post_];
  const int64_t chunk = operation.posted;
  if (chunk == 0 &&
      (operation.after > completed_ || operation.call.sequence > completed_ + kCallsAhead)) {
    return false;
  }
  int slot = 0;
  if (operation.step->staged()) {
    slot = operation.slot(chunk);
    const bool slot_is_free = operation.staged_index(chunk) < staged_finished_ + NodeGroup::kSlots;
    if (!slot_is_free || !group_->all_reduced(slot_tick_[static_cast<size_t>(slot)])) {
      return false;
    }
    slot_tick_[static_cast<size_t>(slot)] = operation.tick(chunk);
  }
  operation.step->copy_in(chunk, slot);
  if (chunk == 0) {
    group_->announce(operation.call);
    log_.set_state(operation.call.sequence, CollectiveLog::State::running);
  }
  group_->post(operation.tick(chunk));
  if (++operation.posted == operation.step->chunks()) {
    ++to_post_;
  }
  return true;
}

bool NodeEngine::reduce_next() {
  if (to_reduce_ == pending_.size()) {
    return false;
  }
  Pending& operation = *pending_[to_reduce_];
  const int64_t chunk = operation.reduced;
  if (chunk == operation.posted || !group_->all_posted(operation.tick(chunk)) ||
      !calls_agree(operation) || !operation.step->reduce(chunk, operation.slot(chunk))) {
    return false;
  }
  group_->mark_reduced(operation.tick(chunk));
  if (++operation.reduced == operation.step->chunks()) {
    ++to_reduce_;
  }
  return true;
}

bool NodeEngine::finish_next() {
  Pending& operation = *pending_.front();
  const int64_t chunk = operation.finished;
  if (chunk == operation.reduced ||
      (operation.step->waits_for_peers() && !group_->all_reduced(operation.tick(chunk)))) {
    return false;
  }
  operation.step->copy_out(chunk, operation.slot(chunk));
  if (operation.step->staged()) {
    ++staged_finished_;
  }
  if (++operation.finished == operation.step->chunks()) {
    completed_ = operation.call.sequence;
    log_.set_state(completed_, CollectiveLog::State::complete);
    operation.complete();
    pending_.pop_front();
    --to_post_;
    --to_reduce_;
  }
  return true;
}

bool NodeEngine::calls_agree(Pending& operation) {
  if (operation.agreed || options_.check == CollectiveCheck::off) {
    return true;
  }
  if (inter_node_ != nullptr) {
    if (!inter_node_->gather_calls(operation.call, calls_)) {
      return false;
    }
    throw_if_calls_differ(world_.rank, operation.call, calls_);
  } else if (!group_->all_announced(operation.call)) {
    calls_.clear();
    for (int k = 0; k < group_->size(); ++k) {
      calls_.push_back(group_->call_of(k, operation.call.sequence));
    }
    throw_if_calls_differ(world_.rank, operation.call, calls_);
  }
  operation.agreed = true;
  return true;
}

void NodeEngine::wait_for(const Pending& operation) {
  throw_if_failed();
  if (!crowded_) {
    crowded_ = group_->crowded();
  }
  Backoff backoff(*crowded_);
  while (!operation.done) {
    if (move_once()) {
      backoff.reset();
      continue;
    }
    backoff.pause();
    if (backoff.is_time_to_check()) {
      check_peers(backoff);
    }
  }
}

std::vector<int> NodeEngine::late_ranks(bool* all_posted) const {
  // What the oldest unfinished chunk waits for.
  const Pending& operation = *pending_.front();
  const uint64_t tick = operation.tick(operation.finished);
  *all_posted = group_->all_posted(tick);
  std::vector<int> late;
  for (int k = 0; k < group_->size(); ++k) {
    if (*all_posted ? !group_->has_reduced(k, tick) : !group_->has_posted(k, tick)) {
      late.push_back(k);
    }
  }
  return late;
}

void NodeEngine::check_peers(const Backoff& backoff) {
  bool all_posted = false;
  const std::vector<int> late = late_ranks(&all_posted);
  PeerTrouble trouble;
  for (int k : late) {
    if (k == group_->rank()) {
      continue;
    }
    const int rank = world_.node_ranks[static_cast<size_t>(k)];
    const bool gone = group_->is_gone(k);
    trouble.some_are_gone = trouble.some_are_gone || gone;
    trouble.late.push_back({rank, gone, group_->last_announced(k)});
  }
  const double timeout = std::chrono::duration<double>(options_.timeout).count();
  if (!trouble.some_are_gone && backoff.seconds() < timeout) {
    return;
  }
  // A rank that found what is wrong leaves too, so look again before taking it for lost.
  if (move_once()) {
    return;
  }
  trouble.rank = world_.rank;
  trouble.size = world_.size;
  trouble.seconds = backoff.seconds();
  trouble.others_on_node_arrived = all_posted;
  fail(std::make_exception_ptr(
      CommunicationError(describe_trouble(trouble, pending_.front()->call, log_))));
}

void NodeEngine::fail(std::exception_ptr error) {
  failure_ = error;
  on_failure_();
  for (const auto& operation : pending_) {
    log_.set_state(operation->call.sequence, CollectiveLog::State::failed);
  }
  group_->leave();
  pending_.clear();
  std::rethrow_exception(error);
}

}  // namespace lockstep::detail
