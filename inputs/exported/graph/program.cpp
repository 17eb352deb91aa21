#include <ATen/core/grad_mode.h>
#include <lockstep/collectives/check.h>
#include <lockstep/inputs/exported/archive/json_values.h>
#include <lockstep/inputs/exported/graph/program.h>

namespace lockstep::exported {

namespace {

void store(const Result& result, c10::IValue value, Values& values) {
  if (!result.list) {
    if (result.slots[0] >= 0) {
      values[static_cast<size_t>(result.slots[0])] = std::move(value);
    }
    return;
  }
  const auto list = value.toTensorList();
  LOCKSTEP_CHECK(list.size() == result.slots.size(), "the operator returned ", list.size(),
                 " tensors, and ", result.slots.size(), " were exported");
  for (size_t i = 0; i < result.slots.size(); ++i) {
    if (result.slots[i] >= 0) {
      values[static_cast<size_t>(result.slots[i])] = list.get(i);
    }
  }
}

void run_all(const std::vector<Instruction>& instructions, Values& values, const Place& place,
             bool training) {
  Values stack;
  for (const Instruction& instruction : instructions) {
    instruction.run(stack, values, place, training);
  }
}

}  // namespace

void Instruction::call(Values& stack) const {
  try {
    if (op.has_value()) {
      op->callBoxed(stack);
    } else {
      arithmetic(stack);
    }
  } catch (c10::Error& error) {
    error.add_context("ExportedModule: " + origin);
    throw;
  }
}

void Instruction::run(Values& stack, Values& values, const Place& place, bool training) const {
  if (region != nullptr) {
    const ModeGuard modes(region->modes, place);
    return run_all(region->instructions, values, place, training);
  }
  stack.clear();
  for (const Argument& argument : arguments) {
    argument.push(stack, values, place);
  }
  if (!training && evaluation.skip) {
    stack.resize(1);  // the tensor that the operator would change
  } else {
    if (!training && evaluation.argument >= 0) {
      stack[static_cast<size_t>(evaluation.argument)] = evaluation.value;
    }
    call(stack);
  }
  LOCKSTEP_CHECK(stack.size() >= results.size(), "ExportedModule: ", origin, ": the operator ",
                 "returned ", stack.size(), " values, and ", results.size(), " were exported");
  for (size_t i = 0; i < results.size(); ++i) {
    store(results[i], std::move(stack[i]), values);
  }
}

void Program::bind(const std::unordered_map<std::string, at::Tensor>& tensors) {
  for (const StateSlot& entry : state) {
    const auto found = tensors.find(entry.name);
    if (found == tensors.end()) {
      malformed("the program uses '", entry.name, "', which the archive does not hold");
    }
    initial[static_cast<size_t>(entry.slot)] = found->second;
  }
}

Values Program::run(const std::vector<c10::IValue>& leaves, const Place& place,
                    bool training) const {
  Values values = initial;
  inputs.bind(leaves, values);
  std::vector<at::Tensor> changed;  // backward needs the old values: run on copies
  for (const Mutation& mutation : mutations) {
    c10::IValue& target = values[static_cast<size_t>(mutation.target)];
    changed.push_back(target.toTensor());
    target = changed.back().clone();
  }
  run_all(instructions, values, place, training);
  for (size_t i = 0; i < mutations.size(); ++i) {
    if (training || !mutations[i].counter) {
      const at::NoGradGuard no_grad;
      changed[i].copy_(mutations[i].value.take(values).toTensor());
    }
  }
  Values result;
  result.reserve(outputs.size());
  for (const Operand& output : outputs) {
    result.push_back(output.take(values));
  }
  return result;
}

}  // namespace lockstep::exported
