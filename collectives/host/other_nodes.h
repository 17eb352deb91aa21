#pragma once

#include <lockstep/collectives/core/call_mismatch.h>
#include <lockstep/collectives/host/inter_node.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::detail {

/// What a rank that waits hears from the ranks of other nodes, and tells them. At each quarter of
/// the deadline it tells how far the ranks of its own node are, because a rank that is stopped
/// cannot say so itself. Threads: as the communicator.
class OtherNodes {
 public:
  /// `inter_node` may be null: then there are none.
  OtherNodes(InterNode* inter_node, std::vector<int> ranks_of_this_node, int size, double timeout);

  /// What was told in an earlier wait counts no more, except that a rank has left.
  void begin_wait();
  /// Called while this rank waits, for `waited` seconds so far.
  void exchange(double waited, const std::function<std::vector<RankSign>()>& signs_of_this_node);
  /// Whether a rank has left so long ago that its data must have arrived.
  bool have_lost_a_rank(double waited) const;
  /// Adds those that have not entered the call of this number, and those that said nothing.
  void add_to(PeerTrouble& trouble, uint64_t sequence) const;
  /// The last words of this rank.
  void leave_because(const std::string& cause) noexcept;

 private:
  InterNode* inter_node_;
  std::vector<int> ranks_;
  double timeout_;
  std::map<int, RankSign> heard_;
  double next_ = 0.0;              // seconds of waiting
  std::optional<double> left_at_;  // seconds of waiting
};

}  // namespace lockstep::detail
