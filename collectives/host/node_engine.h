#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/collectives/communicator_options.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/collectives/host/attendance.h>
#include <lockstep/collectives/host/collective_step.h>
#include <lockstep/collectives/host/inter_node.h>
#include <lockstep/collectives/host/node_group.h>
#include <lockstep/collectives/host/other_nodes.h>
#include <lockstep/collectives/impl/activity.h>
#include <lockstep/collectives/impl/backoff.h>
#include <lockstep/collectives/impl/collective_log.h>
#include <lockstep/collectives/impl/device_watch.h>
#include <lockstep/collectives/work.h>

#include <array>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace lockstep::detail {

class PendingOperation;

/// Runs the collectives of one rank in the order of issue. All progress is made inside issue(),
/// advance() and wait_for(); it stops where data of peers is missing.
///
/// Threads: one at a time. After a collective has failed, every call throws the same exception.
class NodeEngine final : public LeavableCalls, public std::enable_shared_from_this<NodeEngine> {
 public:
  /// This rank, and how ranks are numbered. `rank` and `size`: in the communicator.
  /// `node_ranks[k]`: the communicator's rank of the group's rank k. `job_ranks[k]`: the launcher's
  /// number of the communicator's rank k; empty if ranks are threads.
  struct World {
    int rank;
    int size;
    std::vector<int> node_ranks;
    std::vector<int> job_ranks = {};
  };
  NodeEngine(World world, std::unique_ptr<NodeGroup> group, CommunicatorOptions options,
             std::unique_ptr<InterNode> inter_node = nullptr);

  std::shared_ptr<Operation> issue(CollectiveCall call, std::unique_ptr<CollectiveStep> step,
                                   std::array<at::Tensor, 2> tensors);
  /// Issues and waits.
  void run(CollectiveCall call, std::unique_ptr<CollectiveStep> step);
  void advance() override;
  void wait_for(const PendingOperation& operation);
  /// Throws PeerStepFailed if a peer has left the step and does not make this call. Never waits.
  void look_at_peers(const PendingOperation& operation);
  /// Waits for all pending collectives.
  void drain();
  /// Completes pending collectives (not after a failure), then announces that this rank leaves.
  /// While an exception is on its way Attendance keeps this engine, and announces it.
  void close() noexcept;
  void leave() noexcept override;

  /// Lets leave_because() end this engine.
  void leave_with_the_process();
  /// From now on this rank leaves collectives where `attendance` says so.
  void attend(std::shared_ptr<Attendance> attendance, std::string name);
  const std::shared_ptr<Attendance>& attendance() const { return attendance_; }
  /// Called again and again while this rank waits.
  void on_idle(std::function<void()> callback) { on_idle_ = std::move(callback); }
  /// Called about once a millisecond while this rank waits.
  void on_check(std::function<void()> callback) { on_check_ = std::move(callback); }
  const std::string& name() const override { return name_; }
  bool has_failed() const override { return failure_ != nullptr; }
  void leave_step(uint64_t round, const std::string& cause) override;
  OpenCalls open_calls() const override;
  void settle(const CallsOfRanks& calls, const std::exception_ptr& why) override;

  /// Called once, when a collective fails.
  void on_failure(std::function<void()> callback) { on_failure_ = std::move(callback); }

  const World& world() const { return world_; }
  NodeGroup& group() { return *group_; }
  /// Null on a single node.
  InterNode* inter_node() { return inter_node_.get(); }
  const CommunicatorOptions& options() const { return options_; }
  const CollectiveLog& log() const { return log_; }

 private:
  void throw_if_failed() const;
  std::shared_ptr<PendingOperation> add(CollectiveCall call, std::unique_ptr<CollectiveStep> step,
                                        std::array<at::Tensor, 2> tensors);
  bool move_once();
  bool post_next();
  bool reduce_next();
  bool finish_next();
  bool calls_agree(PendingOperation& operation);
  void follow_peers(const PendingOperation& operation);
  void check_peers(const PendingOperation& operation, const Backoff& backoff);
  std::vector<int> late_ranks() const;
  RankSign sign_of(int local_rank) const;
  void tell_launcher(const PeerTrouble& trouble) const;
  void check_device();
  /// `cause`, `code`: told to the peers when this rank leaves.
  [[noreturn]] void fail(const std::exception_ptr& error, const std::string& cause,
                         ExitCode code = ExitCode::peer_lost);
  void end(const std::exception_ptr& error, const std::string& cause, ExitCode code);

  World world_;
  std::unique_ptr<NodeGroup> group_;
  CommunicatorOptions options_;
  std::unique_ptr<InterNode> inter_node_;
  OtherNodes other_nodes_;
  CollectiveLog log_;

  std::optional<bool> crowded_;  // set at the first wait: every rank has its group then

  std::deque<std::shared_ptr<PendingOperation>> pending_;
  size_t to_post_ = 0;      // index in pending_: the first with chunks left to post
  size_t to_reduce_ = 0;    // and the first with chunks left to reduce
  uint64_t completed_ = 0;  // sequence number of the last complete call
  uint64_t next_tick_ = 1;
  uint64_t staged_issued_ = 0;  // chunks in staging memory, of all calls
  uint64_t staged_finished_ = 0;
  std::array<uint64_t, NodeGroup::kSlots> slot_tick_ = {};
  std::vector<CollectiveCall> calls_;
  std::thread::id shown_on_;  // the thread whose activity own_activity() shows
  std::exception_ptr failure_;
  std::function<void()> on_failure_ = [] {};
  std::function<void()> on_idle_;
  std::function<void()> on_check_;
  std::shared_ptr<Attendance> attendance_;  // null: ranks do not leave collectives
  std::string name_;
  std::shared_ptr<Leave> leave_;
};

}  // namespace lockstep::detail
