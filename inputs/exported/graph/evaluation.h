#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>
#include <lockstep/inputs/exported/graph/argument.h>
#include <lockstep/inputs/exported/graph/source.h>

#include <string>
#include <vector>

namespace lockstep::exported {

/// How an operator differs after eval(): torch.export stores the mode of the model in arguments.
struct Evaluation {
  bool mode = false;  // the operator has an argument for the mode
  bool flag = false;  // ... that Python's train() and eval() may switch
  bool on = false;    // ... and that was on at export
  int argument = -1;  // the argument that takes `value`; -1: none
  c10::IValue value;
  bool skip = false;  // do not run the operator: it counts batches
};

/// The rule of an operator, by the names of its arguments: train, training, use_input_stats,
/// dropout_p. Norms without running statistics use those of the batch in both modes, and a call
/// that passes a constant, such as F.dropout(x, 0.5), keeps it.
/// Throws Malformed for a norm that was told to use neither.
Evaluation evaluation_of(const c10::FunctionSchema& schema, const std::vector<Argument>& arguments,
                         const Source& source);

}  // namespace lockstep::exported
