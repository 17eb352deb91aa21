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
  /// For every call of NCCL, and for every collective from its issue on.
  std::chrono::milliseconds call = std::chrono::minutes(10);
  /// For an abort, which NCCL itself may never return from.
  std::chrono::milliseconds abort = std::chrono::seconds(10);
};

/// One NCCL communicator from its birth to its end; waits for non-blocking calls, never for the
/// device.
///
/// Errors: CommunicationError when NCCL fails or a deadline passes; the communicator is aborted
/// before it is thrown. Threads: one at a time, but failure() and abort() may be called from any.
/// One lock keeps every thread but one out of NCCL: since NCCL 2.26 even asking for the state
/// (ncclCommGetAsyncError) ends the last call's thread and frees its record. Communicators are
/// non-blocking, so no thread holds the lock while it waits for a peer, an abort always gets it,
/// and nothing is freed while another thread is inside a call. The price: NCCL makes a thread for
/// each call that is not part of a graph. Blocking calls make none, but ncclCommAbort waits for
/// NCCL's own threads only and would free a communicator that a waiting call is inside
/// (docs/gpu.md).
class NcclComm {
 public:
  struct Place {
    int rank;
    int size;
  };
  /// Called while a call is in progress; what it throws ends the wait and, since that call can
  /// neither be finished nor forgotten, aborts the communicator.
  using Idle = std::function<void()>;

  static std::shared_ptr<NcclComm> init(std::shared_ptr<NcclApi> api,
                                        const std::vector<NcclApi::Id>& ids, Place place,
                                        NcclDeadlines deadlines, const Idle& idle);
  /// Collective. Null for a negative color. `place` is this rank's in the part.
  std::shared_ptr<NcclComm> split(int color, int key, Place place, const Idle& idle);
  /// Finalizes and destroys, or aborts where that cannot succeed. Never throws. Graphs with its
  /// collectives must be destroyed before.
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  /// Makes one call and waits until it is no longer in progress.
  template <typename Call>
  void call(const char* what, const Call& make_call, const Idle& idle) {
    settle(what, inside(make_call), idle);
  }
  /// The operator that multiplies by `factor`, then sums. Made once for each pair.
  int premultiplied_sum(c10::ScalarType dtype, double factor);
  /// What NCCL says has gone wrong since, such as a peer's end; empty while all is well, and while
  /// another thread is inside NCCL, which learns of it by itself. Never waits.
  std::string failure();
  /// From now on there may be graphs that captured its collectives.
  void expect_graphs() { has_graphs_.store(true); }
  /// Aborts everything in flight, on a thread of its own, and waits at most until the abort
  /// deadline. False if ncclCommAbort has not returned by then: the process should end soon. A
  /// second call does nothing. ncclCommAbort does not return while graphs with its collectives
  /// exist, and their owner learns of the failure only now. So where there may be graphs, the
  /// destructor does the waiting.
  bool abort() noexcept;
  bool aborted() const { return aborted_.load(); }

  /// False where NCCL cannot, or no longer.
  bool register_memory(void* memory, size_t bytes, void** token);
  void deregister_memory(void* token);

  NcclApi& api() { return *api_; }
  const std::shared_ptr<NcclApi>& shared_api() const { return api_; }
  const Place& place() const { return place_; }

 private:
  NcclComm(std::shared_ptr<NcclApi> api, Place place, NcclDeadlines deadlines)
      : api_(std::move(api)), place_(place), deadlines_(deadlines) {}

  /// What `use` makes of the handle, with no other thread inside NCCL; `unknown` after an abort.
  template <typename Use>
  NcclStatus inside(const Use& use) {
    const std::lock_guard<std::mutex> alone(inside_);
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
  std::map<std::pair<c10::ScalarType, double>, int> operators_;
  std::mutex inside_;
  std::atomic<bool> aborted_{false};
  std::atomic<bool> has_graphs_{false};
  std::future<void> abort_;
  bool abort_returned_ = true;
};

}  // namespace lockstep::detail
