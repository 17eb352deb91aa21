#include "batch.h"

#include <set>
#include <utility>

#include "../common/faults.h"
#include "../common/work.h"

namespace fake_cuda {
namespace {

/// Keeps a communicator in use: by work on a stream, or by a graph.
class Use {
 public:
  explicit Use(Comm comm) : comm_(std::move(comm)) { comm_->begin_use(); }
  ~Use() { comm_->end_use(); }
  Use(const Use&) = delete;
  Use& operator=(const Use&) = delete;

 private:
  Comm comm_;
};

/// NCCL's work belongs to the communicator's device, whatever the caller's is.
class DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    cudaGetDevice(&before_);
    cudaSetDevice(device);
  }
  ~DeviceGuard() { cudaSetDevice(before_); }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int before_ = 0;
};

}  // namespace

/// A batch while it runs. Its copies share the place in the order and the use of the communicator,
/// not the progress.
class Batch::Run {
 public:
  Run(Comm comm, std::vector<Collective> collectives, std::vector<Transfer> transfers,
      std::shared_ptr<RecordedCall> recorded)
      : comm_(std::move(comm)),
        collectives_(std::move(collectives)),
        transfers_(std::move(transfers)),
        done_(transfers_.size()),
        recorded_(std::move(recorded)),
        use_(std::make_shared<Use>(comm_)) {
    if (recorded_ == nullptr) {
      place_ = std::make_shared<Place>(comm_->lane());
    }
  }

  /// One piece of work, see work.h.
  bool operator()() {
    if (comm_->is_aborted()) {
      abort();
      return true;
    }
    if (comm_->error() != ncclSuccess) {
      if (comm_->patience_is_over()) {
        throw DeviceFault(cudaErrorLaunchFailure,
                          "the collective never ended, and nobody aborted the communicator: " +
                              comm_->error_text());
      }
      return false;
    }
    if (!entered_ && !enter()) {
      return false;
    }
    if (!advance()) {
      return false;
    }
    leave();
    return true;
  }

 private:
  bool enter() {
    Lane& lane = *comm_->lane();
    entered_ = recorded_ == nullptr ? lane.enter(place_->number()) : lane.enter(*recorded_);
    if (!entered_) {
      return false;
    }
    count("collectives", static_cast<long>(collectives_.size() + transfers_.size()));
    for (size_t i = 0; i < collectives_.size() + transfers_.size(); ++i) {
      if (fails_now(Planted::kFailedCollective)) {
        comm_->fail(ncclSystemError, "a planted fault (FAKE_CUDA_FAIL_COLLECTIVE)");
        return false;
      }
    }
    for (Collective& collective : collectives_) {
      collective.begin(*comm_);
    }
    for (Transfer& transfer : transfers_) {
      transfer.begin();
    }
    return true;
  }

  bool advance() {
    for (bool moved = true; moved;) {
      moved = false;
      while (next_ < collectives_.size()) {
        const bool ended = collectives_[next_].advance(*comm_);
        moved = moved || collectives_[next_].moved();
        if (!ended) {
          break;
        }
        ++next_;
      }
      std::set<std::pair<bool, int>> busy;  // messages of one pair keep their order
      for (size_t i = 0; i < transfers_.size(); ++i) {
        Transfer& transfer = transfers_[i];
        const std::pair<bool, int> way{transfer.sends(), transfer.peer()};
        if (done_[i] || busy.contains(way)) {
          continue;
        }
        done_[i] = transfer.advance(*comm_);
        moved = moved || transfer.moved() || done_[i];
        if (!done_[i]) {
          busy.insert(way);
        }
      }
      bool all = next_ == collectives_.size();
      for (const bool done : done_) {
        all = all && done;
      }
      if (all) {
        return true;
      }
    }
    return false;
  }

  void leave() {
    if (entered_) {
      comm_->lane()->leave();
    }
    if (recorded_ != nullptr) {
      ++recorded_->runs;
    }
    // If this object runs again, it begins anew.
    entered_ = false;
    next_ = 0;
    done_.assign(done_.size(), false);
  }

  /// Results of what had begun are NaN, so that nobody takes them for sums.
  void abort() {
    for (size_t i = next_; i < collectives_.size() && entered_; ++i) {
      collectives_[i].poison(*comm_);
    }
    for (size_t i = 0; i < transfers_.size() && entered_; ++i) {
      if (!done_[i]) {
        transfers_[i].poison();
      }
    }
    leave();
  }

  Comm comm_;
  std::vector<Collective> collectives_;
  std::vector<Transfer> transfers_;
  std::vector<bool> done_;
  std::shared_ptr<RecordedCall> recorded_;
  std::shared_ptr<Place> place_;
  std::shared_ptr<Use> use_;
  bool entered_ = false;
  size_t next_ = 0;
};

ncclResult_t Batch::enqueue_on(cudaStream_t stream, const std::string& what) const {
  const DeviceGuard guard(comm_->place().device);
  if (device_of(stream) != comm_->place().device) {
    set_last_error("the stream belongs to another device than the communicator");
    return ncclUnhandledCudaError;
  }
  std::shared_ptr<RecordedCall> recorded;
  const bool records = is_capturing(stream);
  if (records) {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long id = 0;
    if (cudaStreamGetCaptureInfo(stream, &status, &id, nullptr, nullptr, nullptr, nullptr) !=
        cudaSuccess) {
      return ncclUnhandledCudaError;
    }
    recorded = comm_->lane()->record(id);
  }
  const Run run(comm_, collectives_, transfers_, recorded);
  if (enqueue(stream, what, run) != cudaSuccess) {
    set_last_error("the stream takes no work");
    return ncclUnhandledCudaError;
  }
  if (!comm_->is_blocking() && !records) {
    comm_->must_be_polled();
    return ncclInProgress;
  }
  return ncclSuccess;
}

}  // namespace fake_cuda
