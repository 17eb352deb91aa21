#pragma once

#include <lockstep/collectives/core/call_mismatch.h>
#include <lockstep/collectives/host/inter_node.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::detail {

/// Exchanges signs (RankSign) with the ranks of other nodes while this rank waits. At each quarter
/// of the deadline it sends the signs of all ranks of its node, because a stopped rank cannot send
/// its own. Threads: as the communicator.
class OtherNodes {
 public:
  /// `inter_node`: null on a single node.
  OtherNodes(InterNode* inter_node, std::vector<int> ranks_of_this_node, int size, double timeout);

  /// Drops the signs of earlier waits, except those of ranks that have left.
  void begin_wait();
  /// Takes the messages that have arrived. `waited`: how long this rank waits.
  void hear(double waited);
  /// Called while this rank waits, for `waited` seconds so far.
  void exchange(double waited, const std::function<std::vector<RankSign>()>& signs_of_this_node);
  /// Whether a rank left so long ago that none of its data can still arrive.
  bool have_lost_a_rank(double waited) const;
  /// Adds the ranks that left or have not entered the call `sequence`, and those that sent no sign.
  void add_to(PeerTrouble& trouble, uint64_t sequence) const;
  /// Tells the other nodes that this rank leaves.
  void leave_because(const std::string& cause, int code) noexcept;
  /// As those of NodeGroup, for the ranks of other nodes.
  void leave_step(uint64_t round, uint64_t last, const std::string& cause);
  std::optional<std::string> left_step(uint64_t round, uint64_t sequence) const;

 private:
  struct LeftStep {
    uint64_t round = 0;
    uint64_t last = 0;
    std::string cause;
  };

  InterNode* inter_node_;
  std::vector<int> ranks_;
  double timeout_;
  std::map<int, RankSign> heard_;
  std::map<int, LeftStep> left_steps_;
  double next_ = 0.0;              // seconds of waiting
  std::optional<double> left_at_;  // seconds of waiting
};

}  // namespace lockstep::detail
