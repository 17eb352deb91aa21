#pragma once

#include <lockstep/collectives/host/node_steps.h>

#include <vector>

namespace lockstep::detail {

/// Sums one slice over all ranks of all nodes, in rank order.
class SliceSum {
 public:
  /// `inter_node`: null on a single node.
  SliceSum(const kernels::Reduction& reduction, c10::ScalarType dtype, InterNode* inter_node)
      : reduction_(reduction), dtype_(dtype), inter_node_(inter_node) {}

  /// True once all destinations are written; until then call it again with the same arguments.
  bool run(const std::vector<const void*>& sources, const std::vector<void*>& destinations,
           int64_t n);

 private:
  kernels::Reduction reduction_;
  c10::ScalarType dtype_;
  InterNode* inter_node_;
  bool exchanging_ = false;
  std::vector<char> result_;
};

}  // namespace lockstep::detail
