#include <lockstep/inputs/exported/archive/json_values.h>
#include <lockstep/inputs/exported/graph/evaluation.h>

#include <optional>

namespace lockstep::exported {

namespace {

const Operand* literal_of(const Argument& argument) {
  const bool literal = argument.kind == Argument::Kind::value && argument.operands[0].slot < 0;
  return literal ? &argument.operands[0] : nullptr;
}

/// True for a norm that was given no running statistics.
bool without_statistics(const c10::FunctionSchema& schema, const std::vector<Argument>& arguments) {
  const auto position = schema.argumentIndexWithName("running_mean");
  return schema.overload_name() == "no_stats" ||
         (position.has_value() && literal_of(arguments[static_cast<size_t>(*position)]) != nullptr);
}

bool is_flag(const std::string& name) {
  return name == "train" || name == "training" || name == "use_input_stats";
}

/// What eval() makes of an argument; empty for one that says nothing of the mode.
std::optional<c10::IValue> switched_off(const std::string& name, const c10::IValue& given) {
  if (is_flag(name) && given.isBool()) {
    return c10::IValue(false);
  }
  return name == "dropout_p" && given.isDouble() ? std::optional(c10::IValue(0.0)) : std::nullopt;
}

}  // namespace

Evaluation evaluation_of(const c10::FunctionSchema& schema, const std::vector<Argument>& arguments,
                         const Source& source) {
  Evaluation evaluation;
  const bool statistics_of_batch = without_statistics(schema, arguments);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = schema.arguments()[i].name();
    const Operand* given = literal_of(arguments[i]);
    const auto off = given != nullptr ? switched_off(name, given->literal) : std::nullopt;
    if (!off.has_value()) {
      continue;
    }
    evaluation.mode = true;
    const bool on = given->literal != *off;
    if (statistics_of_batch) {
      if (!on) {
        malformed("a norm without running statistics must use those of the batch, but ", name,
                  "=False");
      }
      continue;
    }
    if (on && source.passes_constant(name, i)) {
      continue;
    }
    evaluation.flag = evaluation.flag || on || is_flag(name);
    evaluation.on = evaluation.on || on;
    if (on) {
      evaluation.argument = static_cast<int>(i);
      evaluation.value = *off;
    }
  }
  return evaluation;
}

}  // namespace lockstep::exported
