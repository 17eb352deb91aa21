#pragma once

#include <ATen/ATen.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>

namespace lockstep::testing {

/// What the ranks of one communicator of a FakeNccl share: who is there, and what each has brought.
struct FakeGroup {
  explicit FakeGroup(int size) : size(size) {}
  const int size;
  std::mutex mutex;
  std::set<int> joined;
  /// One collective, as far as its ranks have come.
  struct Meeting {
    std::map<int, std::string> what;    // by rank
    std::map<int, at::Tensor> brought;  // by rank
  };
  std::map<uint64_t, Meeting> meetings;
  std::map<uint64_t, std::set<int>> captured_by;  // ranks that have captured their nth collective
  struct Split {
    std::map<int, std::pair<int, int>> wishes;        // rank -> color, key
    std::map<int, std::shared_ptr<FakeGroup>> parts;  // color -> ranks
  };
  std::map<uint64_t, Split> splits;
};

/// NCCL's book-keeping of one call of a non-blocking communicator: a thread that does the work.
struct FakeGroupJob {
  std::atomic<bool> done{false};
  std::thread thread{[this] { done.store(true); }};
};

/// One rank's communicator.
struct FakeComm {
  FakeComm() = default;
  ~FakeComm() { end_job(); }
  FakeComm(const FakeComm&) = delete;
  FakeComm& operator=(const FakeComm&) = delete;

  std::shared_ptr<FakeGroup> group;
  int rank = 0;
  uint64_t collectives = 0;
  std::thread::id caller;  // of the last collective
  uint64_t begun = 0;      // how many its stream has come to
  uint64_t captured = 0;
  uint64_t splits = 0;
  int polls_left = 0;
  bool hangs = false;
  bool finalizing = false;
  std::atomic<int> under_way{0};
  std::atomic<bool> aborted{false};
  std::shared_ptr<int> graphs = std::make_shared<int>(0);  // shared by what is part of one
  // A part of a split that is not complete yet.
  std::shared_ptr<FakeGroup> parent;
  uint64_t split_number = 0;
  int color = -1, parent_rank = 0;
  /// Writes the handle of a part to its place, which NCCL does on its own thread.
  std::function<void()> hand_out;
  /// Who asks for the state of a call that is done joins its thread and frees it. As in NCCL
  /// nothing guards this against a second thread.
  FakeGroupJob* job = nullptr;
  std::atomic<const char*> inside{nullptr};  // the call that a thread is in
  std::atomic<bool> freed{false};

  void start_job() { job = new FakeGroupJob(); }
  void end_job();
  /// False while the work of the last call goes on.
  bool job_is_done();
  /// False while ranks of the parent have not said where they want to be.
  bool find_group();
  /// Whether all ranks have joined; during a capture, whether all have captured as much.
  bool all_here();
  /// Has captured one more collective.
  void note_captured();
  bool has_graphs() const { return graphs.use_count() > 1; }
};

/// What a collective does once all ranks have brought their data.
struct FakePlan {
  std::string what;  // must be the same on all ranks
  at::Tensor input;
  std::function<void(const std::map<int, at::Tensor>& brought)> finish;
};

/// A rank's part in a collective, on its stream.
struct FakePart {
  /// True once it is done.
  bool operator()();
  bool meet();

  std::shared_ptr<FakeComm> self;
  FakePlan plan;
  std::set<uint64_t> hangs_at;
  std::shared_ptr<int> graph;  // null where it is part of none
  uint64_t number = 0;
  bool arrived = false;
};

}  // namespace lockstep::testing
