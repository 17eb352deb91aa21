#pragma once

#include <lockstep/collectives/impl/nccl_api.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace lockstep::testing {

using namespace detail;

/// What the ranks of a FakeNccl share.
struct FakeNcclWorld;
struct FakeComm;
struct FakePlan;
std::shared_ptr<FakeNcclWorld> make_fake_nccl_world();

/// An NCCL whose ranks are threads of this process and whose streams are FakeStreams. Like the real
/// one it hangs when ranks call different things or only some have captured what they call, makes
/// ranks that capture wait for each other, comes back from an abort once the graphs are gone,
/// rounds each partial sum to the dtype, and refuses nothing that it does not notice. Each call
/// makes a thread, which whoever asks for the state next joins and frees, without a lock
/// (ThreadSanitizer sees a second thread); misuse() tells of it in every build. As seen on an H100
/// a split says success while it is in progress, and the part's handle is written when the parent
/// is ready. What goes wrong on this rank is set in `script`.
class FakeNccl final : public NcclApi {
 public:
  struct Script {
    int version = 22809;
    bool takes_several_ids = true;
    /// How often poll() says in_progress after every call.
    int polls = 0;
    std::optional<NcclStatus> id_fails;
    std::optional<NcclStatus> init_fails;
    std::optional<NcclStatus> collective_fails;
    std::optional<NcclStatus> split_fails;
    /// This rank never comes to the end of its init.
    bool init_hangs = false;
    /// This rank's part of these collectives (from 1) never runs.
    std::set<uint64_t> hangs_at;
    /// From this collective on poll() reports the status.
    std::map<uint64_t, NcclStatus> error_after;
    bool abort_hangs = false;
    /// As with config.blocking = 1: a collective makes no thread, and returns once its peers have
    /// come (never at hangs_at) or an abort has told it to. Like the real one the abort waits for
    /// threads of NCCL only, and frees a communicator that the caller's thread is still inside.
    bool blocks = false;
    bool no_memory = false;
    bool no_registration = false;
    /// Runs inside every call on a communicator, on the caller's thread.
    std::function<void(const std::string& call)> inside = [](const std::string&) {};
  };

  FakeNccl(std::shared_ptr<FakeNcclWorld> world, Script script);
  ~FakeNccl() override;

  /// What was called here, in order: "init", "all_reduce Half[4] op 2", ...
  std::vector<std::string> calls() const;
  int count(const std::string& begins_with) const;
  /// Calls on a communicator that another thread was in, or that had been freed; calls that take
  /// the thread's current device and were made on another one.
  std::vector<std::string> misuse() const;
  /// Threads that calls have made so far.
  int threads() const { return threads_.load(); }
  /// Blocks of allocate() that were not released.
  int blocks() const { return blocks_.load(); }
  /// Lets a hanging abort() return.
  void release_abort() { abort_released_.store(true); }

  int version() override { return script_.version; }
  NcclStatus make_id(Id* id) override;
  bool takes_several_ids() const override { return script_.takes_several_ids; }
  NcclStatus init(Handle* comm, int ranks, const std::vector<Id>& ids, int rank) override;
  NcclStatus split(Handle comm, int color, int key, Handle* part) override;
  NcclStatus poll(Handle comm) override;
  NcclStatus finalize(Handle comm) override;
  NcclStatus destroy(Handle comm) override;
  NcclStatus abort(Handle comm) override;
  std::string last_error(Handle comm) override;
  int plain_operator(Sum sum) override { return static_cast<int>(sum); }
  NcclStatus make_premultiplied_sum(Handle comm, c10::ScalarType dtype, double factor,
                                    int* op) override;
  NcclStatus all_reduce(const void* input, void* output, size_t count, c10::ScalarType dtype,
                        int op, Handle comm, void* stream) override;
  NcclStatus reduce_scatter(const void* input, void* output, size_t count, c10::ScalarType dtype,
                            int op, Handle comm, void* stream) override;
  NcclStatus all_gather(const void* input, void* output, size_t bytes, Handle comm,
                        void* stream) override;
  NcclStatus broadcast(void* buffer, size_t bytes, int root, Handle comm, void* stream) override;
  NcclStatus allocate(void** memory, size_t bytes) override;
  NcclStatus release(void* memory) override;
  NcclStatus register_memory(Handle comm, void* memory, size_t bytes, void** token) override;
  NcclStatus deregister_memory(Handle comm, void* token) override;

 private:
  class Inside;
  void note(const std::string& call) const;
  void require_device(const char* call);
  NcclStatus answer(FakeComm& comm);
  NcclStatus enqueue(FakeComm& comm, FakePlan plan, void* stream);

  std::shared_ptr<FakeNcclWorld> world_;
  Script script_;
  mutable std::mutex mutex_;
  mutable std::vector<std::string> calls_;
  std::vector<std::string> misuse_;
  std::vector<std::shared_ptr<FakeComm>> comms_;
  std::vector<double> factors_;
  std::atomic<int> blocks_{0};
  std::atomic<int> threads_{0};
  std::atomic<bool> abort_released_{false};
};

}  // namespace lockstep::testing
