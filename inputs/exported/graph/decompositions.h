#pragma once

#include <lockstep/inputs/exported/graph/program.h>
#include <lockstep/inputs/exported/graph/source.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep::exported {

/// The operator of a node and its inputs.
struct Call {
  std::string target;
  nlohmann::json inputs;
};

/// What program.run_decompositions() did to a program: it makes detach() an alias and dissolves
/// torch.no_grad(); it joins the convolutions to one operator, which no list of autocast has.
class Decompositions {
 public:
  explicit Decompositions(const nlohmann::json& program);

  /// True if the program was decomposed.
  bool any() const { return any_; }
  /// The call that Python's forward() made. Notes a node whose gradient Python blocked, or may have
  /// blocked. `tensors`: sizes of the values of the node's graph.
  Call undone(const nlohmann::json& node, const Source& source, const std::string& origin,
              const nlohmann::json& tensors);
  const std::vector<Finding>& lost_gradients() const { return lost_gradients_; }

 private:
  bool any_;
  std::vector<Finding> lost_gradients_;
};

}  // namespace lockstep::exported
