#include <lockstep/inputs/exported/graph/batch_norms.h>
#include <lockstep/inputs/exported/graph/operators.h>

#include <algorithm>
#include <array>
#include <unordered_set>

namespace lockstep::exported {

namespace {

/// Arguments of both operators, and the results of the functional one.
constexpr size_t kRunningMean = 3;
constexpr size_t kRunningVar = 4;
constexpr size_t kTraining = 5;
constexpr size_t kResults = 5;  // output, saved mean and deviation, new running mean and variance

int slot_of(const Argument& argument) {
  return argument.kind == Argument::Kind::value ? argument.operands[0].slot : -1;
}

bool is_functional_norm(const Instruction& instruction) {
  if (!instruction.op.has_value() ||
      instruction.op->schema().name() != "aten::_native_batch_norm_legit_functional" ||
      instruction.results.size() != kResults ||
      std::any_of(instruction.results.begin(), instruction.results.end(),
                  [](const Result& result) { return result.list; })) {
    return false;
  }
  const Argument& training = instruction.arguments[kTraining];
  return slot_of(training) < 0 && training.operands[0].literal.isBool() &&
         training.operands[0].literal.toBool();
}

class Recomposer {
 public:
  explicit Recomposer(Program& program) : program_(program) {
    count(program.instructions);
    count(program.outputs);
    for (const Mutation& mutation : program.mutations) {
      count({mutation.value});
    }
    for (const StateSlot& entry : program.state) {
      if (entry.kind == StateSlot::Kind::buffer) {
        buffers_[entry.slot] = entry.slot;
      }
    }
  }

  void run() {
    for (Instruction& instruction : program_.instructions) {
      if (is_functional_norm(instruction)) {
        follow(instruction);
      }
    }
    auto& mutations = program_.mutations;
    const auto rest =
        std::stable_partition(mutations.begin(), mutations.end(), [&](const Mutation& mutation) {
          const auto found = buffers_.find(mutation.value.slot);
          return found == buffers_.end() || found->second != mutation.target ||
                 changed_.count(mutation.target) == 0;
        });
    if (static_cast<size_t>(mutations.end() - rest) != changed_.size()) {
      return;
    }
    mutations.erase(rest, mutations.end());
    for (Instruction* norm : norms_) {
      recompose(*norm);
    }
  }

 private:
  void count(const std::vector<Instruction>& instructions) {
    for (const Instruction& instruction : instructions) {
      for (const Argument& argument : instruction.arguments) {
        count(argument.operands);
      }
      if (instruction.region != nullptr) {
        count(instruction.region->instructions);
      }
    }
  }

  void count(const std::vector<Operand>& operands) {
    for (const Operand& operand : operands) {
      reads_[operand.slot] += operand.slot < 0 ? 0 : 1;
    }
  }

  /// Adds a norm whose running statistics are buffers, or results of an earlier norm on these
  /// buffers, and are read nowhere else.
  void follow(Instruction& norm) {
    std::array<int, kResults> results{};
    for (size_t i = 0; i < kResults; ++i) {
      results[i] = norm.results[i].slots[0];
    }
    const int mean = slot_of(norm.arguments[kRunningMean]);
    const int var = slot_of(norm.arguments[kRunningVar]);
    if (buffers_.count(mean) == 0 || buffers_.count(var) == 0 || reads_[results[1]] != 0 ||
        reads_[results[2]] != 0) {
      return;
    }
    for (const int slot : {mean, var, results[3], results[4]}) {
      if (reads_[slot] != 1) {
        return;
      }
    }
    buffers_[results[3]] = buffers_[mean];
    buffers_[results[4]] = buffers_[var];
    changed_.insert({buffers_[mean], buffers_[var]});
    norms_.push_back(&norm);
  }

  void recompose(Instruction& norm) const {
    norm.op = find_operator("torch.ops.aten.batch_norm.default");
    for (const size_t i : {kRunningMean, kRunningVar}) {
      int& slot = norm.arguments[i].operands[0].slot;
      slot = buffers_.at(slot);
    }
    norm.arguments.push_back({Argument::Kind::value, {{-1, false, false}}});  // cudnn_enabled
    norm.results.resize(1);  // the training flag has the same place: norm.evaluation stays
  }

  Program& program_;
  std::unordered_map<int, int> reads_;    // number of reads of a slot
  std::unordered_map<int, int> buffers_;  // slot -> slot of the buffer with its value
  std::unordered_set<int> changed_;
  std::vector<Instruction*> norms_;
};

}  // namespace

void recompose_batch_norms(Program& program) {
  Recomposer(program).run();
}

}  // namespace lockstep::exported
