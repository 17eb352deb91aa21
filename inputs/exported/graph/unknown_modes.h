#pragma once

#include <lockstep/inputs/exported/graph/program.h>

#include <string>
#include <unordered_map>
#include <vector>

namespace lockstep::exported {

/// Finds what Python's forward() may have decided by `if self.training`, of which a program keeps
/// only what it did at export: random numbers of operators without an argument for the mode, norms
/// by statistics that are no buffers, and writes to buffers other than those of norms.
class UnknownModes {
 public:
  void add_buffer(int slot, const std::string& name);
  /// Add the operators in their order.
  void add(const Instruction& instruction);
  /// The findings, with the writes that a functional program makes at its end.
  std::vector<Finding> findings(const std::vector<Mutation>& mutations) const;

 private:
  bool makes_statistics(const Instruction& instruction) const;

  /// The node that computed a value.
  struct Producer {
    std::string origin;
    bool mode = false;
  };

  std::unordered_map<int, std::string> buffers_;  // a buffer's slot, and those of its views
  std::unordered_map<int, Producer> producers_;
  std::vector<Finding> findings_;
};

}  // namespace lockstep::exported
