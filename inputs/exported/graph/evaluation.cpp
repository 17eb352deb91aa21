#include <lockstep/inputs/exported/archive/json_values.h>
#include <lockstep/inputs/exported/graph/evaluation.h>

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

}  // namespace

Evaluation evaluation_of(const c10::FunctionSchema& schema,
                         const std::vector<Argument>& arguments) {
  Evaluation evaluation;
  const bool statistics_of_batch = without_statistics(schema, arguments);
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& name = schema.arguments()[i].name();
    const Operand* given = literal_of(arguments[i]);
    if (given == nullptr) {
      continue;
    }
    if (statistics_of_batch) {
      if (is_flag(name) && given->literal.isBool() && !given->literal.toBool()) {
        malformed("a norm without running statistics must use those of the batch, but ", name,
                  "=False");
      }
    } else if (is_flag(name) && given->literal.isBool()) {
      evaluation.flag = true;
      evaluation.on = given->literal.toBool();
      if (evaluation.on) {
        evaluation.argument = static_cast<int>(i);
        evaluation.value = false;
      }
    } else if (name == "dropout_p" && given->literal.isDouble() && given->literal.toDouble() > 0) {
      evaluation.flag = true;
      evaluation.on = true;
      evaluation.argument = static_cast<int>(i);
      evaluation.value = 0.0;
    }
  }
  return evaluation;
}

}  // namespace lockstep::exported
