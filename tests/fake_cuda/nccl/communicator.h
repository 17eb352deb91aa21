#pragma once

#include <nccl.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "board.h"
#include "lane.h"

namespace fake_cuda {

/// How elements are reduced: an operator of NCCL, and what each rank multiplies its elements by.
struct Reduction {
  ncclRedOp_t op = ncclSum;             // the operator between ranks
  int32_t shared_op = ncclSum;          // what the ranks must agree on
  std::optional<double> factor;         // known at the call
  const void* device_factor = nullptr;  // read when the call runs
  ncclDataType_t factor_type = ncclFloat32;
  int divisor = 0;  // of integers, after the sum
};

}  // namespace fake_cuda

/// One rank's side of a communicator. It lives as long as anything uses it: the program, a call
/// that waits on a stream, a graph. Threads: any.
///
/// Errors: a failure is kept and told to the other ranks through the board. What waits on a stream
/// stays there, as NCCL's kernels do, until this rank aborts (or patience() is over).
class ncclComm : public std::enable_shared_from_this<ncclComm> {
 public:
  struct Place {
    int rank = 0;
    int ranks = 1;
    int device = 0;
  };

  ncclComm(Place place, bool is_blocking, std::shared_ptr<fake_cuda::Lane> lane);
  ~ncclComm();

  const Place& place() const { return place_; }
  bool is_blocking() const { return is_blocking_; }
  const std::shared_ptr<fake_cuda::Lane>& lane() const { return lane_; }
  fake_cuda::Board& board() { return *board_; }
  fake_cuda::RankEntry& own_entry() { return (*board_)->ranks[place_.rank]; }

  // Making one. These wait for the other ranks.
  ncclResult_t join(const std::string& name, fake_cuda::Board::Open how);
  /// Fills in the part's place and joins; the part of a rank without a color is null.
  ncclResult_t split(int color, int key, const std::shared_ptr<ncclComm>& part);

  // Errors.
  /// Keeps the first error, and tells it to the other ranks.
  ncclResult_t fail(ncclResult_t error, const std::string& why);
  ncclResult_t error() const { return error_.load(); }
  std::string error_text() const;
  bool is_aborted() const { return lane_->is_aborted(); }
  /// Looks whether another rank has failed or, where this rank waits for it, has ended. Cheap.
  void look_at_peers(const std::function<bool(const fake_cuda::RankEntry&)>& is_waited_for);
  /// How long calls on a stream outlive the error of their communicator.
  bool patience_is_over() const;

  // Jobs: calls that wait, on a thread of their own if the communicator does not block.
  using Job = std::function<ncclResult_t()>;
  /// `shares_result`: another communicator that is in progress until then.
  ncclResult_t start(Job job, bool on_thread, const std::shared_ptr<ncclComm>& shares_result = {});
  /// Waits for the job.
  ncclResult_t join_job();
  /// ncclInProgress, the error, or success.
  ncclResult_t poll();
  /// An error if the communicator cannot take a call now.
  ncclResult_t check_ready();
  /// A call that does not block was made: the program has to ask for its end.
  void must_be_polled() { polls_until_done_.store(2); }

  // What uses it.
  void begin_use() { ++uses_; }
  void end_use();
  /// Waits until no call is on a stream and no graph has one; false if it failed meanwhile.
  bool wait_until_unused();
  ncclResult_t finalize();
  bool is_finalized() const { return finalized_.load(); }
  /// The program gives it back.
  void leave();
  void abort();

  // Operators with a factor.
  ncclRedOp_t add_operator(const fake_cuda::Reduction& reduction);
  bool remove_operator(ncclRedOp_t op);
  /// Nothing if there is no such operator for the type.
  std::optional<fake_cuda::Reduction> reduction(ncclRedOp_t op, ncclDataType_t type);

  // Registered memory. It gains nothing here, but what is given back must have been registered.
  void* add_registration(void* memory);
  bool remove_registration(void* token);

  /// Parts of collectives so far. Only calls that run in the lane use it.
  uint64_t parts = 0;

 private:
  ncclResult_t wait_for_all(const std::function<bool(const fake_cuda::RankEntry&)>& has_come);
  ncclResult_t check_places();
  /// Without this one, a rank that has not joined never will.
  fake_cuda::ProcessId awaited_process(int rank) const;
  ncclResult_t keep(ncclResult_t error, const std::string& why);

  Place place_;
  bool is_blocking_;
  std::shared_ptr<fake_cuda::Lane> lane_;
  std::shared_ptr<fake_cuda::Board> board_;
  std::vector<fake_cuda::ProcessId> members_;  // of a part: the processes of its ranks
  uint64_t splits_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable unused_;
  std::atomic<ncclResult_t> error_{ncclSuccess};
  std::string error_text_;
  std::chrono::steady_clock::time_point failed_at_;
  std::atomic<int64_t> looked_at_{0};
  std::thread job_;
  std::atomic<bool> job_runs_{false};
  std::weak_ptr<ncclComm> job_part_;  // what the job makes
  std::atomic<int> polls_until_done_{0};
  std::atomic<int> uses_{0};
  std::atomic<bool> finalized_{false};
  std::map<int, fake_cuda::Reduction> operators_;
  int next_operator_ = ncclNumOps;
  std::map<void*, void*> registrations_;  // by token
  uintptr_t last_registration_ = 0;
};
