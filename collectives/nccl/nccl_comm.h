#pragma once

#include <lockstep/collectives/impl/nccl_api.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::detail {

struct NcclDeadlines {
  /// For each call of NCCL, and for each collective since its issue.
  std::chrono::milliseconds call = std::chrono::minutes(10);
  /// For an abort, from which NCCL may never return.
  std::chrono::milliseconds abort = std::chrono::seconds(10);
};

/// Owns an NCCL communicator. Waits for non-blocking calls, never for the device.
///
/// Errors: when NCCL fails or a deadline passes, Error (environment) from init(), which a restart
/// does not cure, later CommunicationError; the communicator is aborted first. Threads: one at a
/// time, but failure() and abort() may be called from any. A lock lets one thread at a time into
/// NCCL: since NCCL 2.26 even a query of the state (ncclCommGetAsyncError) joins the thread of the
/// last call and frees its data. Communicators are non-blocking, so no thread holds the lock while
/// it waits for a peer, and an abort always gets it. The cost: NCCL makes a thread for each call
/// that is not part of a graph. Blocking calls need none, but ncclCommAbort would free the
/// communicator while such a call still uses it (docs/gpu.md).
class NcclComm {
 public:
  struct Place {
    int rank;
    int size;
  };
  /// Called again and again while a call is in progress. An exception ends the wait and aborts the
  /// communicator, because the call cannot be completed any more.
  using Idle = std::function<void()>;

  static std::shared_ptr<NcclComm> init(std::shared_ptr<NcclApi> api,
                                        const std::vector<NcclApi::Id>& ids, Place place,
                                        NcclDeadlines deadlines, const Idle& idle);
  /// Collective. `place`: of this rank in the result. Null for a negative color.
  std::shared_ptr<NcclComm> split(int color, int key, Place place, const Idle& idle);
  /// Finalizes and destroys the communicator; aborts it after a failure, and where an exception
  /// leaves and peers do not come to the end of their work within the abort deadline: an abort ends
  /// what it was split from, too. Never throws. Destroy graphs with its collectives before.
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  /// Makes a call and waits until it is done. What the call returns tells of errors only: NCCL's
  /// split returns success while it is in progress (2.28.9 and 2.30.7 do).
  template <typename Call>
  void call(const char* what, const Call& make_call, const Idle& idle) {
    const NcclStatus status = inside(make_call);
    settle(what, status == NcclStatus::success ? poll() : status, idle);
  }
  /// The operator that multiplies by `factor`, then sums; cached for each (dtype, factor).
  int premultiplied_sum(c10::ScalarType dtype, double factor);
  /// The error that NCCL reports, such as the end of a peer; empty: none. Also empty while another
  /// thread is inside NCCL, which gets the error itself. Never waits.
  std::string failure();
  /// From now on graphs may contain its collectives; see abort().
  void expect_graphs() { has_graphs_.store(true); }
  /// Aborts everything in flight, on a thread of its own, and waits at most until the abort
  /// deadline. False if ncclCommAbort has not returned by then, or another thread has not come back
  /// from NCCL: ask_for_end(). A second call does nothing. ncclCommAbort does not return while
  /// graphs with its collectives exist, and their owner must see the failure first: after
  /// expect_graphs() the destructor waits instead.
  bool abort() noexcept;
  bool aborted() const { return aborted_.load(); }

  /// False if NCCL cannot register it, or after an abort.
  bool register_memory(void* memory, size_t bytes, void** token);
  void deregister_memory(void* token);

  NcclApi& api() { return *api_; }
  const std::shared_ptr<NcclApi>& shared_api() const { return api_; }
  const Place& place() const { return place_; }

 private:
  NcclComm(std::shared_ptr<NcclApi> api, Place place, NcclDeadlines deadlines)
      : api_(std::move(api)), place_(place), deadlines_(deadlines) {}

  /// The result of `use`, with no other thread inside NCCL; `unknown` after an abort.
  template <typename Use>
  NcclStatus inside(const Use& use) {
    const std::lock_guard<std::timed_mutex> alone(inside_);
    return aborted_.load() ? NcclStatus::unknown : use(*api_, handle_);
  }
  void settle(const char* what, NcclStatus status, const Idle& idle);
  NcclStatus poll();
  std::string words_on(NcclStatus status);
  [[noreturn]] void fail(const char* what, const std::string& why);
  bool abort_returns() const;

  std::shared_ptr<NcclApi> api_;
  NcclApi::Handle handle_ = nullptr;
  Place place_;
  NcclDeadlines deadlines_;
  bool started_ = false;
  std::map<std::pair<c10::ScalarType, double>, int> operators_;
  std::timed_mutex inside_;
  std::atomic<bool> aborted_{false};
  std::atomic<bool> has_graphs_{false};
  std::future<void> abort_;
  bool abort_returned_ = true;
};

/// Says on standard error that this process should end, and asks `lockstep run` to end it: a call
/// to the device or to NCCL does not return, so an exception may never reach main. Library code
/// does not end a process itself.
void ask_for_end(int rank, const std::string& why);

}  // namespace lockstep::detail
