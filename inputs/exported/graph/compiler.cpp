#include <lockstep/inputs/exported/archive/json_values.h>
#include <lockstep/inputs/exported/graph/batch_norms.h>
#include <lockstep/inputs/exported/graph/compiler.h>
#include <lockstep/inputs/exported/graph/operators.h>
#include <torch/version.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <unordered_set>
#include <utility>

namespace lockstep::exported {

namespace {

using Json = nlohmann::json;

constexpr int64_t kSchemaMajor = 8;

bool ends_with(const std::string& text, const std::string& ending) {
  return text.size() >= ending.size() &&
         text.compare(text.size() - ending.size(), ending.size(), ending) == 0;
}

bool counts_batches(const std::string& buffer) {
  return buffer == "num_batches_tracked" || ends_with(buffer, ".num_batches_tracked");
}

/// Whether fp16 and bf16 can hold the fill number in `values`. They cannot hold finfo(float32).min,
/// for example, which attention masks use.
bool fits_16_bits(const std::unordered_map<std::string, const Json*>& values) {
  const auto fill = values.find("fill_value");
  if (fill == values.end()) {
    return true;
  }
  const auto [kind, value] = alternative(*fill->second);
  const double number = kind == "as_float" ? floating(*value)
                        : kind == "as_int" ? static_cast<double>(integer(*value))
                                           : 0.0;
  return !std::isfinite(number) || std::abs(number) <= 65504.0;
}

/// The last line of the stack trace outside of torch: `File "model.py", line 13, in forward`.
std::string source_line(const Json& node) {
  const auto metadata = node.find("metadata");
  if (metadata == node.end() || !metadata->contains("stack_trace")) {
    return "";
  }
  std::istringstream lines(metadata->at("stack_trace").get<std::string>());
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    const auto begin = line.find("File \"");
    if (begin != std::string::npos && line.find("/torch/") == std::string::npos) {
      found = line.substr(begin);
    }
  }
  return found;
}

class Compiler {
 public:
  Compiler(const Json& json, const Place& home)
      : graph_(json.at("graph_module").at("graph")),
        signature_(json.at("graph_module").at("signature")),
        home_(home),
        program_{{}, InputRules(json), {}, {}, {}, {}, {}, {}, {}, false, true, false} {
    names_.device = home.device;
    names_.slot = [this](const std::string& name) {
      const auto found = slots_.find(name);
      if (found == slots_.end()) {
        malformed("the value '", name, "' is used before it is computed");
      }
      return found->second;
    };
  }

  Program compile(const Json& json) {
    for (const Json& spec : signature_.at("input_specs")) {
      add_input(spec);
    }
    for (const Json& node : graph_.at("nodes")) {
      add_node(node);
    }
    for (const Json& spec : signature_.at("output_specs")) {
      add_output(spec);
    }
    add_tree(json.at("graph_module").at("module_call_graph"));
    recompose_batch_norms(program_);
    mark_last_uses();
    program_.initial.resize(static_cast<size_t>(next_slot_));
    return std::move(program_);
  }

 private:
  int define(const Json& name) {
    slots_[name.get<std::string>()] = next_slot_;
    return next_slot_++;
  }

  void add_state(const Json& spec, const char* name_field, StateSlot::Kind kind) {
    const auto name = spec.at(name_field).get<std::string>();
    const int slot = define(spec.at("arg").at("name"));
    program_.state.push_back({slot, name, kind});
    state_slots_[name] = slot;
    if (kind == StateSlot::Kind::buffer && counts_batches(name)) {
      counters_.insert(slot);
    }
  }

  void add_input(const Json& spec) {
    const auto [kind, entry] = alternative(spec);
    if (kind == "parameter") {
      add_state(*entry, "parameter_name", StateSlot::Kind::parameter);
    } else if (kind == "buffer") {
      add_state(*entry, "buffer_name", StateSlot::Kind::buffer);
    } else if (kind == "tensor_constant") {
      add_state(*entry, "tensor_constant_name", StateSlot::Kind::constant);
    } else if (kind == "user_input") {
      add_user_input(entry->at("arg"));
    } else if (kind != "constant_input") {
      malformed("inputs of the kind '", kind,
                "' (custom objects, tokens of effects) are not run. "
                "Export a forward() of tensors");
    }
  }

  void add_user_input(const Json& argument) {
    const auto [kind, value] = alternative(argument);
    if (kind == "as_tensor") {
      const auto name = value->at("name").get<std::string>();
      program_.inputs.add(name, define(name), &graph_.at("tensor_values").at(name));
    } else if (kind == "as_sym_int" && value->contains("as_name")) {
      const auto name = value->at("as_name").get<std::string>();
      program_.inputs.add(name, define(name), nullptr);
    } else if (kind == "as_sym_float" || kind == "as_sym_bool" || kind == "as_custom_obj") {
      malformed("inputs of the kind '", kind, "' are not run. Pass a tensor");
    }
  }

  void add_node(const Json& node) {
    const auto target = node.at("target").get<std::string>();
    const Json unnamed = "?";
    const Json& name =
        node.contains("name") && node.at("name").is_string() ? node.at("name") : unnamed;
    const std::string line = source_line(node);
    std::string origin = "node '" + name.get<std::string>() + "' (" + target + ")";
    if (!line.empty()) {
      origin += ", " + line;
    }
    note_modules(node);
    try {
      if (target != "torch.ops.aten._assert_tensor_metadata.default") {  // would fail after to()
        add_instruction(node, target, origin);
      }
    } catch (const Malformed& error) {
      malformed(origin, ": ", error.what());
    }
  }

  void add_instruction(const Json& node, const std::string& target, const std::string& origin) {
    Instruction instruction;
    instruction.origin = origin;
    size_t operands = 0;
    instruction.arithmetic = arithmetic_of(target, operands);
    const Json& given = node.at("inputs");
    if (instruction.arithmetic != nullptr) {
      for (const Json& argument : given) {
        instruction.arguments.push_back(number_of(argument.at("arg"), names_));
      }
      if (instruction.arguments.size() != operands) {
        malformed("takes ", operands, " numbers, not ", instruction.arguments.size());
      }
    } else {
      instruction.op = find_operator(target);
      add_arguments(given, instruction);
    }
    for (const Json& result : node.at("outputs")) {
      instruction.results.push_back(result_of(result));
    }
    program_.instructions.push_back(std::move(instruction));
  }

  void add_arguments(const Json& given, Instruction& instruction) {
    const c10::FunctionSchema& schema = instruction.op->schema();
    std::unordered_map<std::string, const Json*> values;
    for (const Json& argument : given) {
      const auto name = argument.at("name").get<std::string>();
      if (!schema.argumentIndexWithName(name).has_value()) {
        malformed("the operator of this LibTorch (" TORCH_VERSION ") has no argument '", name, "'");
      }
      values[name] = &argument.at("arg");
    }
    for (const c10::Argument& argument : schema.arguments()) {
      instruction.arguments.push_back(argument_for(argument, schema, values));
    }
    instruction.evaluation = evaluation_of(schema, instruction.arguments);
    program_.has_training_flags = program_.has_training_flags || instruction.evaluation.flag;
    program_.all_flags_off = program_.all_flags_off && !instruction.evaluation.on;
    if (schema.name() == "aten::add_" &&
        counters_.count(instruction.arguments[0].operands[0].slot)) {
      instruction.evaluation.skip = true;
    }
  }

  Argument argument_for(const c10::Argument& argument, const c10::FunctionSchema& schema,
                        const std::unordered_map<std::string, const Json*>& values) {
    const auto value = values.find(argument.name());
    if (value == values.end()) {
      if (!argument.default_value().has_value() &&
          argument.type()->kind() != c10::TypeKind::OptionalType) {
        malformed("the argument '", argument.name(), "' is missing");
      }
      return {Argument::Kind::value,
              {{-1, false, argument.default_value().value_or(c10::IValue())}}};
    }
    Argument made = argument_of(*value->second, argument, names_);
    if (argument.name() == "dtype" && makes_a_constant(schema) && fits_16_bits(values) &&
        !made.operands.empty() && made.operands[0].literal.isInt() &&
        made.operands[0].literal.toInt() == static_cast<int64_t>(home_.dtype)) {
      program_.uses_place_dtype = true;
      return {Argument::Kind::place_dtype, {}};
    }
    return made;
  }

  Result result_of(const Json& result) {
    const auto [kind, value] = alternative(result);
    if (kind == "as_tensor") {
      return {false, {define(value->at("name"))}};
    }
    if (kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool") {
      return {false, {value->contains("as_name") ? define(value->at("as_name")) : -1}};
    }
    if (kind == "as_none") {
      return {false, {-1}};
    }
    if (kind != "as_tensors") {
      malformed("results of the kind '", kind, "' are not run");
    }
    Result list{true, {}};
    for (const Json& tensor : *value) {
      list.slots.push_back(define(tensor.at("name")));
    }
    return list;
  }

  void add_output(const Json& spec) {
    const auto [kind, entry] = alternative(spec);
    if (kind == "user_output" || kind == "loss_output") {
      program_.outputs.push_back(output_of(entry->at("arg")));
      return;
    }
    const Json& argument = entry->at("arg");
    const Operand value{names_.slot(argument.at("name").get<std::string>()), false, {}};
    if (kind == "buffer_mutation" || kind == "parameter_mutation") {
      const auto name = entry->at(kind == "buffer_mutation" ? "buffer_name" : "parameter_name")
                            .get<std::string>();
      const auto target = state_slots_.find(name);
      if (target == state_slots_.end()) {
        malformed("the program writes to '", name, "', which it does not read");
      }
      program_.mutations.push_back({value, target->second, counts_batches(name)});
    } else if (kind == "user_input_mutation") {
      const auto name = entry->at("user_input_name").get<std::string>();
      program_.mutations.push_back({value, names_.slot(name), false});
    } else {
      malformed("outputs of the kind '", kind,
                "' are not run. Export the forward() alone; the "
                "gradients are made here");
    }
  }

  /// The operand of a loss_output: {"name": ...}.
  Operand output_of(const Json& argument) {
    if (argument.contains("name")) {
      output_is_tensor_.push_back(true);
      return {names_.slot(argument.at("name").get<std::string>()), false, {}};
    }
    const auto [kind, value] = alternative(argument);
    output_is_tensor_.push_back(kind == "as_tensor");
    if (kind == "as_tensor") {
      return {names_.slot(value->at("name").get<std::string>()), false, {}};
    }
    if (kind == "as_none") {
      return {};
    }
    if (kind == "as_string") {
      return {-1, false, value->get<std::string>()};
    }
    return number_of(argument, names_).operands[0];
  }

  void add_tree(const Json& calls) {
    program_.tree = Tree::parse(calls.at(0).at("signature").at("out_spec").get<std::string>());
    const std::vector<std::string> names = program_.tree.names();
    if (names.size() != program_.outputs.size()) {
      malformed("the program returns ", program_.outputs.size(),
                " values, and their structure has ", names.size());
    }
    for (size_t i = 0; i < names.size(); ++i) {
      if (output_is_tensor_[i]) {
        program_.output_tensors.push_back(names[i].empty() ? "output" : names[i]);
      }
    }
  }

  /// Python's classes, from entries "key,path,class" of the nodes' module stacks.
  void note_modules(const Json& node) {
    const auto metadata = node.find("metadata");
    if (metadata == node.end() || !metadata->contains("nn_module_stack")) {
      return;
    }
    std::istringstream entries(metadata->at("nn_module_stack").get<std::string>());
    for (std::string entry; std::getline(entries, entry, ';');) {
      const auto first = entry.find(',');
      const auto last = entry.rfind(',');
      if (first < last && last != std::string::npos) {
        const std::string path = entry.substr(first + 1, last - first - 1);
        const auto dot = entry.rfind('.');
        program_.module_types[path] =
            entry.substr(dot != std::string::npos && dot > last ? dot + 1 : last + 1);
      }
    }
  }

  /// Marks the last read of each slot, which moves the value out. Outputs and mutations are read
  /// after all instructions.
  void mark_last_uses() {
    std::vector<bool> read(static_cast<size_t>(next_slot_), false);
    const auto mark = [&](Operand& operand) {
      if (operand.slot >= 0) {
        operand.last = !read[static_cast<size_t>(operand.slot)];
        read[static_cast<size_t>(operand.slot)] = true;
      }
    };
    for (auto output = program_.outputs.rbegin(); output != program_.outputs.rend(); ++output) {
      mark(*output);
    }
    for (auto it = program_.mutations.rbegin(); it != program_.mutations.rend(); ++it) {
      mark(it->value);
    }
    for (auto it = program_.instructions.rbegin(); it != program_.instructions.rend(); ++it) {
      for (auto argument = it->arguments.rbegin(); argument != it->arguments.rend(); ++argument) {
        for (auto operand = argument->operands.rbegin(); operand != argument->operands.rend();
             ++operand) {
          mark(*operand);
        }
      }
    }
  }

  const Json& graph_;
  const Json& signature_;
  const Place home_;
  Program program_;
  Names names_;
  std::unordered_map<std::string, int> slots_;
  std::unordered_map<std::string, int> state_slots_;
  std::unordered_set<int> counters_;
  std::vector<bool> output_is_tensor_;
  int next_slot_ = 0;
};

}  // namespace

Program compile(const Json& program, const Place& home) {
  const int64_t major = integer(program.at("schema_version").at("major"));
  if (major != kSchemaMajor) {
    const auto version = program.find("torch_version");
    malformed("the program has version ", major,
              " of torch.export's schema, and this library reads "
              "version ",
              kSchemaMajor, ". It was written by torch ",
              version != program.end() && version->is_string() ? version->get<std::string>() : "?",
              "; export with torch " TORCH_VERSION);
  }
  return Compiler(program, home).compile(program);
}

}  // namespace lockstep::exported
