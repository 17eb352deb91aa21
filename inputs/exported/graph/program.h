#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <lockstep/inputs/exported/graph/argument.h>
#include <lockstep/inputs/exported/graph/arithmetic.h>
#include <lockstep/inputs/exported/graph/evaluation.h>
#include <lockstep/inputs/exported/graph/input_rules.h>
#include <lockstep/inputs/exported/graph/tree.h>

#include <cstdint>
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

/// One operator of the dispatcher, or one function of shape arithmetic.
struct Instruction {
  std::optional<c10::OperatorHandle> op;
  Arithmetic arithmetic = nullptr;
  std::vector<Argument> arguments;
  std::vector<Result> results;
  Evaluation evaluation;
  std::string origin;  // the node and the line of Python source

  void run(Values& stack, Values& values, const Place& place, bool training) const;

 private:
  void call(Values& stack) const;
};

/// A value that is copied to a buffer or an input after a run.
struct Mutation {
  Operand value;
  int target = -1;       // the slot of the buffer or input
  bool counter = false;  // num_batches_tracked
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

  /// Writes the tensors of the state to their slots. Throws Malformed for a name without a tensor.
  void bind(const std::unordered_map<std::string, at::Tensor>& tensors);
  /// Runs on checked inputs and returns the leaves of the output.
  Values run(const std::vector<c10::IValue>& leaves, const Place& place, bool training) const;
};

}  // namespace lockstep::exported
