#include <lockstep/inputs/exported/archive/json_values.h>
#include <lockstep/inputs/exported/graph/batch_norms.h>
#include <lockstep/inputs/exported/graph/compiler.h>
#include <lockstep/inputs/exported/graph/decompositions.h>
#include <lockstep/inputs/exported/graph/operators.h>
#include <lockstep/inputs/exported/graph/region_node.h>
#include <lockstep/inputs/exported/graph/source.h>
#include <lockstep/inputs/exported/graph/unknown_modes.h>
#include <torch/version.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

namespace lockstep::exported {

namespace {

using Json = nlohmann::json;

constexpr int64_t kSchemaMajor = 8;

bool counts_batches(const std::string& buffer) {
  return buffer.substr(buffer.rfind('.') + 1) == "num_batches_tracked";
}

class Compiler {
 public:
  Compiler(const Json& json, const Place& home, const std::vector<std::string>& namespaces)
      : graph_(json.at("graph_module").at("graph")),
        signature_(json.at("graph_module").at("signature")),
        home_(home),
        namespaces_(namespaces),
        decompositions_(json),
        program_{{}, InputRules(json), {}, {}, {}, {}, {}, {}, {}, false, true, false, false, {},
                 {}} {
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
    program_.inputs.add_relations(json);
    program_.instructions = instructions_of(graph_);
    for (const Json& spec : signature_.at("output_specs")) {
      add_output(spec);
    }
    add_tree(json.at("graph_module").at("module_call_graph"));
    recompose_batch_norms(program_);
    program_.decomposed = decompositions_.any();
    program_.lost_gradients = decompositions_.lost_gradients();
    program_.of_unknown_mode = unknown_modes_.findings(program_.mutations);
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
    } else if (kind != StateSlot::Kind::parameter) {
      unknown_modes_.add_buffer(slot, name);
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
    } else if (kind == "constant_input") {
      program_.inputs.add_constant();
    } else {
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
    } else {
      program_.inputs.add_constant();
    }
  }

  std::vector<Instruction> instructions_of(const Json& graph) {
    std::vector<Instruction> outer;
    std::swap(outer, instructions_);
    const Json* const tensors = std::exchange(tensors_, &graph.at("tensor_values"));
    for (const Json& node : graph.at("nodes")) {
      add_node(node);
    }
    tensors_ = tensors;
    std::swap(outer, instructions_);
    return outer;
  }

  void add_node(const Json& node) {
    const auto target = node.at("target").get<std::string>();
    const Json unnamed = "?";
    const Json& name =
        node.contains("name") && node.at("name").is_string() ? node.at("name") : unnamed;
    const Source source(node);
    Instruction instruction;
    instruction.origin = "node '" + name.get<std::string>() + "' (" + target + ")";
    if (!source.line().empty()) {
      instruction.origin += ", " + source.line();
    }
    add_module_types(node, program_.module_types);
    try {
      if (target != "torch.ops.aten._assert_tensor_metadata.default") {  // would fail after to()
        add_instruction(node, target, source, instruction);
        instructions_.push_back(std::move(instruction));
      }
    } catch (const Malformed& error) {
      malformed(instruction.origin, ": ", error.what());
    }
  }

  void add_instruction(const Json& node, const std::string& target, const Source& source,
                       Instruction& instruction) {
    const Json& given = node.at("inputs");
    if (target == "torch.ops.higher_order.wrap_with_set_grad_enabled" ||
        target == "torch.ops.higher_order.wrap_with_autocast") {
      return add_region(node, source, instruction);
    }
    size_t operands = 0;
    instruction.arithmetic = arithmetic_of(target, operands);
    if (instruction.arithmetic != nullptr) {
      for (const Json& argument : given) {
        instruction.arguments.push_back(number_of(argument.at("arg"), names_));
      }
      if (instruction.arguments.size() != operands) {
        malformed("takes ", operands, " numbers, not ", instruction.arguments.size());
      }
    } else {
      const Call call = decompositions_.undone(node, source, instruction.origin, *tensors_);
      instruction.op = find_operator(call.target, namespaces_);
      add_arguments(call.inputs, source, instruction);
    }
    for (const Json& result : node.at("outputs")) {
      instruction.results.push_back(result_of(result));
    }
    if (instruction.op.has_value()) {
      unknown_modes_.add(instruction);
    }
  }

  void add_region(const Json& node, const Source& source, Instruction& instruction) {
    if (source.comes_through("/torch/utils/checkpoint.py")) {
      malformed(
          "torch.export loses the gradients of torch.utils.checkpoint with use_reentrant=True. "
          "Pass use_reentrant=False and export again");
    }
    const RegionNode region(node);
    std::unordered_map<std::string, int> inner;
    for (const auto& [inside, outside] : region.inputs) {
      inner[inside] = names_.slot(outside);
    }
    std::swap(slots_, inner);
    instruction.region = std::make_shared<Region>();
    instruction.region->modes = modes_of(region.settings, home_.device);
    instruction.region->instructions = instructions_of(region.graph);
    std::unordered_map<std::string, int> results;
    for (const auto& [outside, inside] : region.results) {
      results[outside] = names_.slot(inside);
    }
    std::swap(slots_, inner);
    for (const auto& [name, slot] : results) {
      slots_[name] = slot;
    }
  }

  void add_arguments(const Json& given, const Source& source, Instruction& instruction) {
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
    instruction.evaluation = evaluation_of(schema, instruction.arguments, source);
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
    if (argument.name() == "dtype" && makes_a_constant(schema, values) && !made.operands.empty() &&
        made.operands[0].literal.isInt() &&
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
    mark_last_uses(program_.instructions, mark);
  }

  template <typename Mark>
  void mark_last_uses(std::vector<Instruction>& instructions, const Mark& mark) {
    for (auto it = instructions.rbegin(); it != instructions.rend(); ++it) {
      if (it->region != nullptr) {
        mark_last_uses(it->region->instructions, mark);
      }
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
  const std::vector<std::string>& namespaces_;
  Decompositions decompositions_;
  Program program_;
  const Json* tensors_ = nullptr;          // sizes and dtypes of the graph that is being read
  std::vector<Instruction> instructions_;  // of the graph that is being read
  Names names_;
  std::unordered_map<std::string, int> slots_;
  std::unordered_map<std::string, int> state_slots_;
  std::unordered_set<int> counters_;
  UnknownModes unknown_modes_;
  std::vector<bool> output_is_tensor_;
  int next_slot_ = 0;
};

}  // namespace

Program compile(const Json& program, const Place& home,
                const std::vector<std::string>& namespaces) {
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
  return Compiler(program, home, namespaces).compile(program);
}

}  // namespace lockstep::exported
