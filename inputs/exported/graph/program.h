#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <lockstep/inputs/exported/graph/argument.h>
#include <lockstep/inputs/exported/graph/arithmetic.h>
#include <lockstep/inputs/exported/graph/evaluation.h>
#include <lockstep/inputs/exported/graph/input_rules.h>
#include <lockstep/inputs/exported/graph/modes.h>
#include <lockstep/inputs/exported/graph/tree.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace lockstep::exported {

/// The slot of an operator's result, or a slot for each element of a list. -1: not stored.
struct Result {
  bool list = false;
  std::vector<int> slots;
};

struct Region;

/// One operator of the dispatcher, one function of shape arithmetic, or a region with its own
/// modes.
struct Instruction {
  std::optional<c10::OperatorHandle> op;
  Arithmetic arithmetic = nullptr;
  std::shared_ptr<Region> region;  // shared by copies of the program, and not changed any more
  std::vector<Argument> arguments;
  std::vector<Result> results;
  Evaluation evaluation;
  std::string origin;  // the node and the line of Python source

  void run(Values& stack, Values& values, const Place& place, bool training) const;

 private:
  void call(Values& stack) const;
};

/// A part of the program that torch.no_grad() or torch.autocast() encloses. Its values have slots
/// of the program.
struct Region {
  Modes modes;
  std::vector<Instruction> instructions;
};

/// A value that is copied to a buffer or an input after a run.
struct Mutation {
  Operand value;
  int target = -1;       // the slot of the buffer or input
  bool counter = false;  // num_batches_tracked
};

/// A node, and what it does.
struct Finding {
  std::string origin;
  std::string what;
};

/// A parameter, buffer or constant of the program.
struct StateSlot {
  enum class Kind : uint8_t { parameter, buffer, constant };
  int slot;
  std::string name;  // Python's
  Kind kind;
};

/// A compiled program of torch.export: names are slots, arguments are templates, so a run looks up
/// no names. run() is const, so that runs may be nested (recompute in backward).
struct Program {
  std::vector<Instruction> instructions;
  InputRules inputs;
  std::vector<Operand> outputs;
  std::vector<std::string> output_tensors;  // names of the outputs that are tensors
  Tree tree;
  std::vector<Mutation> mutations;
  std::vector<StateSlot> state;
  Values initial;                                             // values of all slots before a run
  std::unordered_map<std::string, std::string> module_types;  // Python's class of each module
  bool has_training_flags = false;
  bool all_flags_off = true;  // exported after model.eval()
  bool uses_place_dtype = false;
  bool decomposed = false;  // by run_decompositions(), which loses torch.no_grad()
  // What may be another after eval(), while the program does not say whether it is.
  std::vector<Finding> of_unknown_mode;
  // What blocked gradients in Python, or may have.
  std::vector<Finding> lost_gradients;

  /// Writes the tensors of the state to their slots. Throws Malformed for a name without a tensor.
  void bind(const std::unordered_map<std::string, at::Tensor>& tensors);
  /// Runs on checked inputs and returns the leaves of the output.
  Values run(const std::vector<c10::IValue>& leaves, const Place& place, bool training) const;
};

}  // namespace lockstep::exported
