#include <ATen/core/enum_tag.h>
#include <lockstep/inputs/exported/graph/unknown_modes.h>

#include <algorithm>

namespace lockstep::exported {

namespace {

std::string write_to(const std::string& buffer) {
  return "writes to the buffer '" + buffer + "'";
}

}  // namespace

void UnknownModes::add_buffer(int slot, const std::string& name) {
  buffers_[slot] = name;
}

void UnknownModes::add(const Instruction& instruction) {
  const c10::FunctionSchema& schema = instruction.op->schema();
  const bool mode = instruction.evaluation.mode;
  if (!mode && instruction.op->hasTag(at::Tag::nondeterministic_seeded)) {
    findings_.push_back({instruction.origin, "draws random numbers"});
  }
  if (instruction.evaluation.argument >= 0 && makes_statistics(instruction)) {
    findings_.push_back({instruction.origin, "is a norm by statistics that are no buffers"});
  }
  std::string viewed;
  for (size_t i = 0; i < instruction.arguments.size(); ++i) {
    const c10::AliasInfo* const alias = schema.arguments()[i].alias_info();
    const std::vector<Operand>& operands = instruction.arguments[i].operands;
    const auto buffer = operands.empty() ? buffers_.end() : buffers_.find(operands[0].slot);
    if (alias == nullptr || buffer == buffers_.end()) {
      continue;
    }
    viewed = buffer->second;
    if (alias->isWrite() && !mode) {
      findings_.push_back({instruction.origin, write_to(viewed)});
    }
  }
  for (size_t i = 0; i < std::min(instruction.results.size(), schema.returns().size()); ++i) {
    for (const int slot : instruction.results[i].slots) {
      if (slot < 0) {
        continue;
      }
      producers_[slot] = {instruction.origin, mode};
      if (!viewed.empty() && schema.returns()[i].alias_info() != nullptr) {
        buffers_[slot] = viewed;
      }
    }
  }
}

/// Whether it is a norm whose running statistics the program itself makes: no torch.nn module does.
bool UnknownModes::makes_statistics(const Instruction& instruction) const {
  const auto position = instruction.op->schema().argumentIndexWithName("running_mean");
  if (!position.has_value()) {
    return false;
  }
  const std::vector<Operand>& given =
      instruction.arguments[static_cast<size_t>(*position)].operands;
  const auto producer = given.empty() ? producers_.end() : producers_.find(given[0].slot);
  return producer != producers_.end() && !producer->second.mode &&  // the norm before it made them
         buffers_.count(given[0].slot) == 0;
}

std::vector<Finding> UnknownModes::findings(const std::vector<Mutation>& mutations) const {
  std::vector<Finding> all = findings_;
  for (const Mutation& mutation : mutations) {
    const auto buffer = buffers_.find(mutation.target);
    const auto producer = producers_.find(mutation.value.slot);
    if (buffer == buffers_.end() || (producer != producers_.end() && producer->second.mode)) {
      continue;  // of an input, or of a norm, whose statistics follow its argument
    }
    all.push_back({producer == producers_.end() ? "the program" : producer->second.origin,
                   write_to(buffer->second)});
  }
  return all;
}

}  // namespace lockstep::exported
