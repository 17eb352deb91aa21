#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <lockstep/inputs/exported/graph/argument.h>

#include <string>
#include <vector>

namespace lockstep::exported {

/// How an operator differs after eval(): torch.export stores the mode of the model in arguments.
struct Evaluation {
  bool flag = false;  // the operator has a training flag
  bool on = false;    // ... that was on at export
  int argument = -1;  // the argument that takes `value`; -1: none
  c10::IValue value;
  bool skip = false;  // do not run the operator: it counts batches
};

/// The rule of an operator, by the names of its arguments: train, training, use_input_stats,
/// dropout_p. Norms without running statistics use those of the batch in both modes.
/// Throws Malformed for a norm that was told to use neither.
Evaluation evaluation_of(const c10::FunctionSchema& schema, const std::vector<Argument>& arguments);

}  // namespace lockstep::exported
