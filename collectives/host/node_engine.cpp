#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/collectives/host/node_engine.h>

#include <lockstep/collectives/core/call_mismatch.h>
#include <lockstep/collectives/core/flight_record.h>
#include <lockstep/collectives/host/pending_operation.h>
#include <lockstep/collectives/impl/as_error.h>
#include <lockstep/collectives/impl/life_sign.h>

#include <algorithm>
#include <cstdio>
#include <utility>

namespace lockstep::detail {
namespace {

/// How many calls a rank may post ahead of its oldest unfinished one: half of what the group keeps.
constexpr uint64_t kCallsAhead = NodeGroup::kCallsKept / 2;
/// After this time a waiting rank shows its peers what it waits for.
constexpr double kSecondsUntilNoted = 0.1;

/// Leaks unfinished calls of a communicator with MPI, which may still read and write their memory;
/// each call keeps the engine alive.
template <typename Calls>
void let_go_of(Calls& calls, bool in_mpi) {
  if (in_mpi && !calls.empty()) {
    new Calls(std::move(calls));
  }
  calls.clear();
}

double seconds_of(std::chrono::milliseconds time) {
  return std::chrono::duration<double>(time).count();
}

/// The handle of a caller: keeps the engine alive, and advances it.
class EngineOperation final : public PendingOperation {
 public:
  EngineOperation(std::shared_ptr<NodeEngine> engine, const CollectiveCall& call,
                  std::unique_ptr<CollectiveStep> step, std::array<at::Tensor, 2> tensors)
      : PendingOperation(call, std::move(step), std::move(tensors)), engine_(std::move(engine)) {}

  bool test() override {
    if (!done) {
      engine_->advance();
    }
    if (!done) {
      engine_->look_at_peers(*this);
    }
    throw_if_abandoned();
    return done;
  }
  void wait() override {
    if (!done) {
      engine_->wait_for(*this);
    }
    throw_if_abandoned();
  }

 private:
  void throw_if_abandoned() const {
    if (abandoned != nullptr) {
      std::rethrow_exception(abandoned);
    }
  }

  std::shared_ptr<NodeEngine> engine_;
};

}  // namespace

NodeEngine::NodeEngine(World world, std::unique_ptr<NodeGroup> group, CommunicatorOptions options,
                       std::unique_ptr<InterNode> inter_node)
    : world_(std::move(world)),
      group_(std::move(group)),
      options_(options),
      inter_node_(std::move(inter_node)),
      other_nodes_(inter_node_.get(), world_.node_ranks, world_.size, seconds_of(options.timeout)) {
}

std::shared_ptr<Operation> NodeEngine::issue(CollectiveCall call,
                                             std::unique_ptr<CollectiveStep> step,
                                             std::array<at::Tensor, 2> tensors) {
  throw_if_failed();
  if (attendance_ != nullptr) {
    attendance_->require_present();
  }
  if (shown_on_ != std::this_thread::get_id()) {
    shown_on_ = std::this_thread::get_id();
    show_activity_in(group_->own_activity());
  }
  auto operation = add(call, std::move(step), std::move(tensors));
  advance();
  return operation;
}

std::shared_ptr<PendingOperation> NodeEngine::add(CollectiveCall call,
                                                  std::unique_ptr<CollectiveStep> step,
                                                  std::array<at::Tensor, 2> tensors) {
  log_.issue(call);
  auto operation = std::make_shared<EngineOperation>(shared_from_this(), call, std::move(step),
                                                     std::move(tensors));
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
  const bool unwinds = std::uncaught_exceptions() > 0;
  const bool is_left = failure_ != nullptr || (attendance_ != nullptr && attendance_->is_away());
  bool is_kept = false;
  try {
    if (!is_left && !unwinds) {
      drain();
    } else if (!is_left && attendance_ != nullptr) {
      attendance_->keep_destroyed(shared_from_this());
      is_kept = true;
    }
    if (attendance_ != nullptr && (!unwinds || attendance_->is_world(*this))) {
      attendance_->let_go_of_destroyed();
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lockstep: while closing a communicator: %s\n", error.what());
  }
  if (!is_kept) {
    leave();
  }
}

void NodeEngine::leave() noexcept {
  group_->leave();
  if (failure_ == nullptr) {
    try {
      failure_ = std::make_exception_ptr(CommunicationError(
          c10::str("rank ", world_.rank, " of ", world_.size,
                   ": this communicator was destroyed before its collectives were complete")));
    } catch (const std::exception&) {  // no memory for a message
      failure_ = std::current_exception();
    }
  }
  let_go_of(pending_, inter_node_ != nullptr);
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
  } catch (const std::exception& error) {
    const std::string text = error.what();
    fail(std::current_exception(), text.substr(0, text.find('\n')));
  } catch (...) {
    fail(std::current_exception(), "");
  }
}

bool NodeEngine::post_next() {
  if (to_post_ == pending_.size()) {
    return false;
  }
  PendingOperation& operation = *pending_[to_post_];
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
  PendingOperation& operation = *pending_[to_reduce_];
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
  PendingOperation& operation = *pending_.front();
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
    log_.set_state(completed_, operation.abandoned != nullptr ? CollectiveLog::State::failed
                                                              : CollectiveLog::State::complete);
    operation.complete();
    pending_.pop_front();
    --to_post_;
    --to_reduce_;
  }
  return true;
}

bool NodeEngine::calls_agree(PendingOperation& operation) {
  if (operation.agreed || options_.check == CollectiveCheck::off) {
    return true;
  }
  if (inter_node_ != nullptr) {
    if (!inter_node_->gather_calls(operation.call, calls_)) {
      return false;
    }
    if (operation.abandoned == nullptr) {
      throw_if_calls_differ(world_.rank, operation.call, calls_, world_.job_ranks);
    }
  } else if (operation.abandoned == nullptr && !group_->all_announced(operation.call)) {
    calls_.clear();
    for (int k = 0; k < group_->size(); ++k) {
      calls_.push_back(group_->call_of(k, operation.call.sequence));
    }
    throw_if_calls_differ(world_.rank, operation.call, calls_, world_.job_ranks);
  }
  operation.agreed = true;
  return true;
}

void NodeEngine::wait_for(const PendingOperation& operation) {
  throw_if_failed();
  if (!crowded_) {
    crowded_ = group_->crowded();
  }
  Backoff backoff(*crowded_);
  std::optional<WaitingNote> note;
  other_nodes_.begin_wait();
  while (!operation.done) {
    if (move_once()) {
      backoff.reset();
      other_nodes_.begin_wait();
      continue;
    }
    backoff.pause();
    if (on_idle_) {
      on_idle_();
    }
    if (backoff.is_time_to_check()) {
      if (!note && backoff.seconds() >= kSecondsUntilNoted) {
        note.emplace("a wait for " + operation.call.describe(), group_->own_activity());
      }
      if (on_check_) {
        on_check_();
      }
      check_device();
      check_peers(operation, backoff);
    }
  }
}

void NodeEngine::attend(std::shared_ptr<Attendance> attendance, std::string name) {
  attendance_ = std::move(attendance);
  name_ = std::move(name);
  attendance_->add(shared_from_this());
}

void NodeEngine::look_at_peers(const PendingOperation& operation) {
  try {
    other_nodes_.hear(/*waited=*/0.0);
  } catch (const std::exception& error) {
    fail(std::current_exception(), error.what());
  }
  follow_peers(operation);
}

void NodeEngine::follow_peers(const PendingOperation& operation) {
  if (attendance_ == nullptr || attendance_->meets()) {
    return;
  }
  attendance_->require_present();
  const uint64_t round = attendance_->round();
  const uint64_t sequence = operation.call.sequence;
  std::optional<std::string> cause = other_nodes_.left_step(round, sequence);
  for (int k = 0; k < group_->size() && !cause; ++k) {
    cause = group_->left_step(k, round, sequence);
  }
  if (cause) {
    attendance_->leave(parse_step_cause(*cause));
    attendance_->require_present();
  }
}

void NodeEngine::leave_step(uint64_t round, const std::string& cause) {
  const uint64_t last = log_.next_sequence() - 1;
  group_->leave_step(round, last, cause);
  other_nodes_.leave_step(round, last, cause);
}

OpenCalls NodeEngine::open_calls() const {
  OpenCalls calls{name_, world_.size, log_.next_sequence() - 1, {}};
  for (const auto& operation : pending_) {
    calls.forms.push_back({operation->step->chunks(), operation->step->staged()});
  }
  return calls;
}

/// A call is complete on no rank, and none has begun to reduce it, unless all ranks have made it.
void NodeEngine::settle(const CallsOfRanks& calls, const std::exception_ptr& why) {
  const bool all_here = calls.found == calls.ranks;
  const bool agree_on_calls = inter_node_ == nullptr || options_.check == CollectiveCheck::on;
  if (!(all_here && agree_on_calls && calls.alike) &&
      (calls.common != calls.last || !pending_.empty())) {
    const std::string text = c10::str(
        "rank ", world_.rank, " of ", world_.size, ": a step has failed, and this communicator ",
        !all_here     ? "is no longer in use on every rank"
        : calls.alike ? "cannot abandon its calls between nodes without check_collectives"
                      : "got different calls from its ranks",
        "; make another one with split()");
    failure_ = std::make_exception_ptr(CommunicationError(text));
    group_->leave_because(text, static_cast<int>(ExitCode::peer_lost));
    let_go_of(pending_, inter_node_ != nullptr);
    return;
  }
  for (const auto& operation : pending_) {
    if (operation->call.sequence > calls.common) {
      operation->abandon(why);
    }
  }
  for (uint64_t made = log_.next_sequence() - 1; made < calls.last; ++made) {
    const OpenCalls::Form& form = calls.rest[made - calls.common];
    add({Verb::abandoned}, make_abandoned(form.chunks, form.staged), {})->abandoned = why;
  }
  drain();
}

/// A device that has failed does nothing of what the peers wait for.
void NodeEngine::check_device() {
  try {
    look_at_device();
  } catch (...) {
    const Error found = as_error(std::current_exception());
    const std::string text = c10::str("rank ", world_.rank, " of ", world_.size,
                                      ": the device has failed: ", found.what());
    leave_because(std::make_exception_ptr(Error(text, found.code())));
    fail(found.code() == ExitCode::peer_lost ? std::make_exception_ptr(CommunicationError(text))
                                             : std::make_exception_ptr(Error(text, found.code())),
         text);
  }
}

void NodeEngine::leave_with_the_process() {
  leave_ = on_leaving([this](const std::exception_ptr& error, const std::string& cause) {
    if (failure_ == nullptr) {
      end(error, cause, as_error(error).code());
    }
  });
}

std::vector<int> NodeEngine::late_ranks() const {
  // The ranks that the oldest unfinished chunk waits for.
  const PendingOperation& operation = *pending_.front();
  const uint64_t tick = operation.tick(operation.finished);
  const bool all_posted = group_->all_posted(tick);
  std::vector<int> late;
  for (int k = 0; k < group_->size(); ++k) {
    if (all_posted ? !group_->has_reduced(k, tick) : !group_->has_posted(k, tick)) {
      late.push_back(k);
    }
  }
  return late;
}

RankSign NodeEngine::sign_of(int local_rank) const {
  const ActivitySlot& activity = group_->activity_of(local_rank);
  RankSign sign;
  sign.rank = world_.node_ranks[static_cast<size_t>(local_rank)];
  sign.last_call = group_->last_announced(local_rank);
  sign.gone = group_->is_gone(local_rank);
  sign.stopped = group_->is_stopped(local_rank);
  sign.seconds = activity_clock() - activity.since();
  sign.activity = activity.text();
  sign.cause = group_->cause_of(local_rank);
  sign.code = group_->code_of(local_rank);
  return sign;
}

void NodeEngine::check_peers(const PendingOperation& operation, const Backoff& backoff) {
  std::vector<int> late = late_ranks();
  late.erase(std::remove(late.begin(), late.end(), group_->rank()), late.end());
  PeerTrouble trouble;
  trouble.some_are_gone =
      std::any_of(late.begin(), late.end(), [this](int k) { return group_->is_gone(k); });
  try {
    other_nodes_.exchange(backoff.seconds(), [this] {
      std::vector<RankSign> signs;
      for (int k = 0; k < group_->size(); ++k) {
        signs.push_back(sign_of(k));
      }
      return signs;
    });
  } catch (const std::exception& error) {
    fail(std::current_exception(), error.what());
  }
  follow_peers(operation);
  if (!trouble.some_are_gone && !other_nodes_.have_lost_a_rank(backoff.seconds()) &&
      backoff.seconds() < seconds_of(options_.timeout)) {
    return;
  }
  // A rank that found differing calls leaves, too; this rank may find them as well.
  if (move_once()) {
    return;
  }
  for (int k : late) {
    const RankSign sign = sign_of(k);
    // A rank of this node that has entered the call is not late: it waits for another node, too.
    const bool waits_too =
        inter_node_ != nullptr && sign.last_call >= pending_.front()->call.sequence;
    if (!waits_too || sign.gone || sign.stopped) {
      trouble.late.push_back(sign);
    }
  }
  other_nodes_.add_to(trouble, pending_.front()->call.sequence);
  trouble.label = pending_.front()->label;
  trouble.rank = world_.rank;
  trouble.size = world_.size;
  trouble.seconds = backoff.seconds();
  tell_launcher(trouble);
  fail(std::make_exception_ptr(CommunicationError(
           describe_trouble(trouble, pending_.front()->call, log_), trouble.code())),
       trouble.cause(), trouble.code());
}

void NodeEngine::tell_launcher(const PeerTrouble& trouble) const {
  if (world_.job_ranks.empty()) {
    return;
  }
  std::vector<int> missed = trouble.late.empty() ? trouble.silent : std::vector<int>();
  for (const RankSign& sign : trouble.late) {
    missed.push_back(sign.rank);
  }
  for (int& rank : missed) {
    rank = world_.job_ranks[static_cast<size_t>(rank)];
  }
  std::sort(missed.begin(), missed.end());
  give(LifeSign::waited, to_text(WaitSign{missed, pending_.front()->call.describe()}));
}

void NodeEngine::fail(const std::exception_ptr& error, const std::string& cause, ExitCode code) {
  if (failure_ == nullptr) {
    end(error, cause, code);
  }
  std::rethrow_exception(error);
}

void NodeEngine::end(const std::exception_ptr& error, const std::string& cause, ExitCode code) {
  failure_ = error;
  on_failure_();
  for (const auto& operation : pending_) {
    log_.set_state(operation->call.sequence, CollectiveLog::State::failed);
  }
  write_flight_record(log_, world_.rank, world_.size);
  group_->leave_because(cause, static_cast<int>(code));
  other_nodes_.leave_because(cause, static_cast<int>(code));
  let_go_of(pending_, inter_node_ != nullptr);
}

}  // namespace lockstep::detail
