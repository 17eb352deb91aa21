#include "communicator.h"

#include <cstdio>
#include <cstring>
#include <iterator>
#include <set>
#include <utility>

#include "../common/work.h"
#include "live_communicators.h"

using fake_cuda::Board;
using fake_cuda::RankEntry;
using fake_cuda::Reduction;
using fake_cuda::SharedFailure;

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::microseconds kPause{100};
constexpr std::chrono::milliseconds kBetweenLooks{2};

/// NCCL's own words for a peer that has gone.
constexpr const char* kPeerEnded = "remote process exited or there was a network error";

std::string rank_text(int rank) {
  return "rank " + std::to_string(rank);
}

}  // namespace

ncclComm::ncclComm(Place place, bool is_blocking, std::shared_ptr<fake_cuda::Lane> lane)
    : place_(place), is_blocking_(is_blocking), lane_(std::move(lane)) {}

ncclComm::~ncclComm() {
  if (job_.joinable()) {
    job_.detach();  // only at the end of the process
  }
}

ncclResult_t ncclComm::join(const std::string& name, Board::Open how) {
  board_ = Board::open(name, how);
  if (board_ == nullptr) {
    return fail(ncclSystemError, "the rank that made the unique id is gone, or has aborted");
  }
  RankEntry& entry = own_entry();
  int32_t nobody = RankEntry::absent;
  if (!entry.state.compare_exchange_strong(nobody, RankEntry::joining)) {
    return fail(ncclInternalError, rank_text(place_.rank) + " of " + std::to_string(place_.ranks) +
                                       " ranks has already checked in");
  }
  entry.ranks = place_.ranks;
  entry.process = fake_cuda::this_process();
  if (cudaDeviceGetPCIBusId(entry.device, sizeof entry.device, place_.device) != cudaSuccess) {
    return fail(ncclUnhandledCudaError, "the device has no bus id");
  }
  entry.state.store(RankEntry::joined);
  ncclResult_t result =
      wait_for_all([](const RankEntry& other) { return other.state >= RankEntry::joined; });
  if (result == ncclSuccess) {
    result = check_places();
  }
  // Nobody else may come, whatever the result.
  if (place_.rank == 0 || result != ncclSuccess) {
    board_->forget_name();
  }
  return result;
}

/// What only all ranks together can know.
ncclResult_t ncclComm::check_places() {
  const bool may_share = fake_cuda::setting("NCCL_MULTI_RANK_GPU_ENABLE", 0L) == 1;
  for (int rank = 0; rank < place_.ranks; ++rank) {
    const RankEntry& entry = (*board_)->ranks[rank];
    if (entry.ranks != place_.ranks) {
      return fail(ncclInvalidUsage, rank_text(rank) + " was told of " +
                                        std::to_string(entry.ranks) + " ranks, rank " +
                                        std::to_string(place_.rank) + " of " +
                                        std::to_string(place_.ranks));
    }
    for (int other = 0; other < rank && !may_share; ++other) {
      if (std::strcmp(entry.device, (*board_)->ranks[other].device) == 0) {
        return fail(ncclInvalidUsage, "Duplicate GPU detected : " + rank_text(other) + " and " +
                                          rank_text(rank) + " both on CUDA device " + entry.device);
      }
    }
  }
  return ncclSuccess;
}

ncclResult_t ncclComm::split(int color, int key, const std::shared_ptr<ncclComm>& part) {
  const uint64_t round = ++splits_;
  RankEntry& own = own_entry();
  // The last round's colors have been read.
  ncclResult_t result =
      wait_for_all([&](const RankEntry& other) { return other.split.load() >= 2 * (round - 1); });
  if (result != ncclSuccess) {
    return result;
  }
  own.color = color;
  own.key = key;
  own.split.store(2 * round - 1);
  result =
      wait_for_all([&](const RankEntry& other) { return other.split.load() >= 2 * round - 1; });
  if (result != ncclSuccess) {
    return result;
  }
  std::set<std::pair<int, int>> members;  // by key, then by rank
  for (int rank = 0; rank < place_.ranks; ++rank) {
    const RankEntry& other = (*board_)->ranks[rank];
    if (other.color == color) {
      members.emplace(other.key, rank);
    }
  }
  own.split.store(2 * round);
  if (part == nullptr) {
    return ncclSuccess;
  }
  part->place_.ranks = static_cast<int>(members.size());
  part->place_.rank =
      static_cast<int>(std::distance(members.begin(), members.find({key, place_.rank})));
  for (const auto& [other_key, rank] : members) {
    part->members_.push_back((*board_)->ranks[rank].process);
  }
  const std::string name =
      board_->name() + "_" + std::to_string(round) + "." + std::to_string(color);
  result = part->join(name, Board::Open::existing_or_new);
  return result == ncclSuccess ? result : keep(result, part->error_text());
}

/// On the host, for calls that meet the other ranks.
ncclResult_t ncclComm::wait_for_all(const std::function<bool(const RankEntry&)>& has_come) {
  for (;;) {
    bool all = true;
    for (int rank = 0; rank < place_.ranks; ++rank) {
      all = all && has_come((*board_)->ranks[rank]);
    }
    if (error_ != ncclSuccess) {
      return error_;
    }
    if (is_aborted()) {
      return keep(ncclInvalidUsage, "the communicator was aborted");
    }
    if (all) {
      return ncclSuccess;
    }
    look_at_peers([&](const RankEntry& other) { return !has_come(other); });
    std::this_thread::sleep_for(kPause);
  }
}

ncclResult_t ncclComm::keep(ncclResult_t error, const std::string& why) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (error_ == ncclSuccess) {
    error_text_ = why;
    failed_at_ = Clock::now();
    error_.store(error);
    fake_cuda::set_last_error(why);
    std::fprintf(stderr, "fake nccl: rank %d of %d: %s\n", place_.rank, place_.ranks, why.c_str());
  }
  return error_;
}

ncclResult_t ncclComm::fail(ncclResult_t error, const std::string& why) {
  keep(error, why);
  if (board_ != nullptr) {
    SharedFailure& failure = (*board_)->failure;
    int32_t none = SharedFailure::none;
    if (failure.state.compare_exchange_strong(none, SharedFailure::writing)) {
      failure.rank = place_.rank;
      std::snprintf(failure.text, sizeof failure.text, "%s", why.c_str());
      failure.state.store(SharedFailure::told);
    }
    board_->forget_name();
  }
  return error;
}

std::string ncclComm::error_text() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return error_text_;
}

void ncclComm::look_at_peers(const std::function<bool(const RankEntry&)>& is_waited_for) {
  if (board_ == nullptr || error_ != ncclSuccess) {
    return;
  }
  const SharedFailure& failure = (*board_)->failure;
  if (failure.state.load() == SharedFailure::told && failure.rank != place_.rank) {
    keep(ncclRemoteError,
         std::string(kPeerEnded) + ": " + rank_text(failure.rank) + " says: " + failure.text);
    return;
  }
  // Questions to the system are seldom.
  const int64_t now = Clock::now().time_since_epoch().count();
  int64_t last = looked_at_.load();
  if (now - last < std::chrono::nanoseconds(kBetweenLooks).count() ||
      !looked_at_.compare_exchange_strong(last, now)) {
    return;
  }
  for (int rank = 0; rank < place_.ranks; ++rank) {
    const RankEntry& other = (*board_)->ranks[rank];
    // Who has not come yet may come, and end, between two questions: its state is read last.
    if (other.state < RankEntry::joined && !fake_cuda::is_alive(awaited_process(rank)) &&
        other.state < RankEntry::joined) {
      fail(ncclRemoteError, std::string(kPeerEnded) + ": " +
                                (members_.empty() ? "the rank that made the unique id"
                                                  : "the process of " + rank_text(rank)));
    }
    const int32_t state = other.state.load();
    if (state == RankEntry::joined && !fake_cuda::is_alive(other.process) && is_waited_for(other)) {
      fail(ncclRemoteError, std::string(kPeerEnded) + ": the process of " + rank_text(rank) + " (" +
                                std::to_string(other.process.pid) + ") has ended");
    } else if (state == RankEntry::left && is_waited_for(other)) {
      fail(ncclRemoteError,
           std::string(kPeerEnded) + ": " + rank_text(rank) + " has destroyed the communicator");
    }
  }
}

fake_cuda::ProcessId ncclComm::awaited_process(int rank) const {
  return members_.empty() ? board_->maker() : members_[rank];
}

bool ncclComm::patience_is_over() const {
  static const std::chrono::milliseconds patience(
      fake_cuda::setting("FAKE_CUDA_NCCL_PATIENCE_MS", 30000L));
  const std::lock_guard<std::mutex> lock(mutex_);
  return error_ != ncclSuccess && Clock::now() - failed_at_ > patience;
}

ncclResult_t ncclComm::start(Job job, bool on_thread,
                             const std::shared_ptr<ncclComm>& shares_result) {
  if (!on_thread) {
    return job();
  }
  job_runs_.store(true);
  if (shares_result != nullptr) {
    shares_result->job_runs_.store(true);
  }
  job_part_ = shares_result;
  job_ = std::thread([this, job = std::move(job), shares_result, self = shared_from_this()] {
    const ncclResult_t result = job();
    if (result != ncclSuccess) {
      keep(result, "a call failed");
      if (shares_result != nullptr) {
        shares_result->keep(result, error_text());
      }
    }
    if (shares_result != nullptr) {
      shares_result->job_runs_.store(false);
    }
    job_runs_.store(false);
  });
  return ncclInProgress;
}

ncclResult_t ncclComm::join_job() {
  if (job_.joinable()) {
    job_.join();
  }
  return error_;
}

ncclResult_t ncclComm::poll() {
  if (job_runs_) {
    return ncclInProgress;
  }
  join_job();
  if (is_aborted()) {
    return keep(ncclInvalidUsage, "the communicator, or one that shares its buffers, was aborted");
  }
  if (error_ == ncclSuccess) {
    look_at_peers([](const RankEntry&) { return false; });  // calls on streams look who ended
  }
  if (error_ != ncclSuccess) {
    return error_;
  }
  if (polls_until_done_ > 0 && --polls_until_done_ > 0) {
    return ncclInProgress;
  }
  return ncclSuccess;
}

ncclResult_t ncclComm::check_ready() {
  if (error_ != ncclSuccess) {
    return error_;
  }
  if (is_aborted()) {
    return keep(ncclInvalidUsage, "the communicator was aborted");
  }
  if (job_runs_ || polls_until_done_ > 0) {
    fake_cuda::set_last_error(
        "Attempt to use communicator before the previous operation returned ncclSuccess");
    return ncclInvalidArgument;
  }
  join_job();
  if (finalized_) {
    fake_cuda::set_last_error("the communicator was finalized");
    return ncclInvalidArgument;
  }
  return ncclSuccess;
}

void ncclComm::end_use() {
  const std::lock_guard<std::mutex> lock(mutex_);
  --uses_;
  unused_.notify_all();
}

bool ncclComm::wait_until_unused() {
  std::unique_lock<std::mutex> lock(mutex_);
  const auto done = [this] { return uses_ == 0 || (error_ != ncclSuccess && !is_aborted()); };
  // An abort has no way to wake this up.
  while (!unused_.wait_for(lock, std::chrono::milliseconds(1), done)) {
  }
  return uses_ == 0;
}

ncclResult_t ncclComm::finalize() {
  if (finalized_.exchange(true)) {
    return ncclInvalidArgument;
  }
  wait_until_unused();
  return error_;
}

void ncclComm::leave() {
  if (board_ != nullptr) {
    own_entry().state.store(RankEntry::left);
  }
}

void ncclComm::abort() {
  lane_->abort();
  if (const auto part = job_part_.lock(); part != nullptr && job_runs_) {
    part->lane_->abort();
  }
  join_job();
  if (board_ != nullptr) {
    // A rank that has finalized has nothing that others could miss.
    if (!finalized_) {
      fail(error_ == ncclSuccess ? ncclInvalidUsage : error_.load(),
           error_ == ncclSuccess ? "the communicator was aborted" : error_text());
    }
    leave();
  }
  wait_until_unused();
}

ncclRedOp_t ncclComm::add_operator(const Reduction& reduction) {
  const std::lock_guard<std::mutex> lock(mutex_);
  operators_[next_operator_] = reduction;
  return static_cast<ncclRedOp_t>(next_operator_++);
}

bool ncclComm::remove_operator(ncclRedOp_t op) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return operators_.erase(op) == 1;
}

std::optional<Reduction> ncclComm::reduction(ncclRedOp_t op, ncclDataType_t type) {
  Reduction reduction;
  reduction.op = op;
  reduction.shared_op = op;
  if (op == ncclAvg) {
    reduction.op = ncclSum;
    const bool is_integer = type <= ncclUint64;
    if (is_integer) {
      reduction.divisor = place_.ranks;
    } else {
      reduction.factor = 1.0 / place_.ranks;
    }
    return reduction;
  }
  if (op >= 0 && op < ncclNumOps) {
    return reduction;
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = operators_.find(op);
  if (found == operators_.end() || found->second.factor_type != type) {
    return std::nullopt;
  }
  return found->second;
}

void* ncclComm::add_registration(void* memory) {
  const std::lock_guard<std::mutex> lock(mutex_);
  void* token = reinterpret_cast<void*>(++last_registration_);
  registrations_[token] = memory;
  return token;
}

bool ncclComm::remove_registration(void* token) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return registrations_.erase(token) == 1;
}
