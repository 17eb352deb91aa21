#include <ATen/ops/empty_like.h>
#include <ATen/ops/full_like.h>
#include <c10/util/Type.h>
#include <lockstep/amp/muon_optimizer.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/step/own/torch_optimizer_state.h>
#include <lockstep/runtime/storage/impl/flat.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <type_traits>
#include <typeinfo>

namespace lockstep::detail {
namespace {

/// Visits the state of one parameter, piece by piece.
class Pieces {
 public:
  Pieces(StateArchive& archive, std::string name, const OwnedMaster& master)
      : archive_(archive), name_(std::move(name)), master_(master) {}

  /// Visits a tensor; it may be undefined until it is needed.
  void tensor(const char* kind, at::Tensor& value) {
    const std::string name = name_ + "." + kind;
    if (archive_.saving() ? !value.defined() : !archive_.has(name)) {
      return;
    }
    const at::Tensor target = value.defined() ? value : at::empty_like(master_.elements).detach();
    if (master_.is_sharded) {
      archive_.part(name, flat_alias(target, name), master_.begin, master_.whole);
    } else {
      archive_.tensor(name, target);
    }
    if (archive_.loading()) {
      value = target;
    }
  }

  void number(const char* kind, int64_t& value) {
    int64_t number = value;
    archive_.number(name_ + "." + kind, number);
    if (archive_.loading()) {
      value = number;
    }
  }

  bool has(const char* kind) const { return archive_.has(name_ + "." + kind); }

 private:
  StateArchive& archive_;
  std::string name_;
  const OwnedMaster& master_;
};

template <typename State>
void visit_adam(State& state, Pieces& pieces) {
  pieces.number("step", state.step());
  pieces.tensor("exp_avg", state.exp_avg());
  pieces.tensor("exp_avg_sq", state.exp_avg_sq());
  pieces.tensor("max_exp_avg_sq", state.max_exp_avg_sq());
}
void visit(torch::optim::AdamParamState& state, Pieces& pieces) {
  visit_adam(state, pieces);
}
void visit(torch::optim::AdamWParamState& state, Pieces& pieces) {
  visit_adam(state, pieces);
}
void visit(torch::optim::SGDParamState& state, Pieces& pieces) {
  pieces.tensor("momentum_buffer", state.momentum_buffer());
}
void visit(torch::optim::AdagradParamState& state, Pieces& pieces) {
  pieces.number("step", state.step());
  pieces.tensor("sum", state.sum());
}
void visit(torch::optim::RMSpropParamState& state, Pieces& pieces) {
  pieces.number("step", state.step());
  pieces.tensor("square_avg", state.square_avg());
  pieces.tensor("momentum_buffer", state.momentum_buffer());
  pieces.tensor("grad_avg", state.grad_avg());
}

/// For Adagrad, which makes its states in the constructor and needs them in a step: resets `state`
/// and returns true. Other optimizers make a state in their first step: returns false.
template <typename State>
bool is_made_beforehand(const torch::optim::Optimizer& optimizer, const OwnedMaster& master,
                        State& state) {
  if constexpr (std::is_same_v<State, torch::optim::AdagradParamState>) {
    const auto& defaults = static_cast<const torch::optim::AdagradOptions&>(optimizer.defaults());
    state.step(0);
    state.sum(at::full_like(master.elements, defaults.initial_accumulator_value()));
    return true;
  }
  return false;
}

/// Returns whether `optimizer` is an Optimizer; `first` is the piece that is always there.
template <typename Optimizer, typename State>
bool visit_if(torch::optim::Optimizer& optimizer, const OwnedMaster& master, const char* first,
              const std::string& name, StateArchive& archive) {
  if (dynamic_cast<Optimizer*>(&optimizer) == nullptr) {
    return false;
  }
  auto& states = optimizer.state();
  const auto key = master.elements.unsafeGetTensorImpl();
  const auto found = states.find(key);
  Pieces pieces(archive, name, master);
  if (archive.saving()) {
    if (found != states.end()) {
      visit(static_cast<State&>(*found->second), pieces);
    }
    return true;
  }
  auto state = std::make_unique<State>();
  const bool is_saved = pieces.has(first);
  if (is_saved) {
    visit(*state, pieces);
  }
  if (archive.loading()) {
    states.erase(key);
    if (is_saved || is_made_beforehand(optimizer, master, *state)) {
      states[key] = std::move(state);
    }
  }
  return true;
}

/// True for exactly this class: a derived class may have another rule.
template <typename Optimizer>
bool is_a(const torch::optim::Optimizer& optimizer) {
  return typeid(optimizer) == typeid(Optimizer);
}

bool updates_each_element_by_itself(const torch::optim::Optimizer& optimizer) {
  namespace optim = torch::optim;  // lockstep has an AdamW of its own
  return is_a<optim::Adam>(optimizer) || is_a<optim::AdamW>(optimizer) ||
         is_a<optim::SGD>(optimizer) || is_a<optim::Adagrad>(optimizer) ||
         is_a<optim::RMSprop>(optimizer);
}

}  // namespace

void visit_torch_state(torch::optim::Optimizer& optimizer, const OwnedMaster& master,
                       const std::string& name, StateArchive& archive) {
  namespace optim = torch::optim;
  if (const auto* muon = dynamic_cast<MuonOptimizer*>(&optimizer)) {
    muon->is_matrix(master.elements)
        ? visit_if<MuonOptimizer, optim::SGDParamState>(optimizer, master, "momentum_buffer", name,
                                                        archive)
        : visit_if<MuonOptimizer, optim::AdamWParamState>(optimizer, master, "step", name, archive);
    return;
  }
  const bool known =
      visit_if<optim::Adam, optim::AdamParamState>(optimizer, master, "step", name, archive) ||
      visit_if<optim::AdamW, optim::AdamWParamState>(optimizer, master, "step", name, archive) ||
      visit_if<optim::SGD, optim::SGDParamState>(optimizer, master, "momentum_buffer", name,
                                                 archive) ||
      visit_if<optim::Adagrad, optim::AdagradParamState>(optimizer, master, "step", name,
                                                         archive) ||
      visit_if<optim::RMSprop, optim::RMSpropParamState>(optimizer, master, "step", name, archive);
  LOCKSTEP_CHECK(known,
                 "TorchOptimizer: only torch::optim's Adam, AdamW, SGD, Adagrad and RMSprop can be "
                 "saved and resumed; use one of these, or train without snapshots");
}

void require_updates_shards(const torch::optim::Optimizer& optimizer,
                            const std::vector<OwnedMaster>& masters) {
  const auto* muon = dynamic_cast<const MuonOptimizer*>(&optimizer);
  LOCKSTEP_CHECK(
      muon != nullptr || updates_each_element_by_itself(optimizer),
      "TorchOptimizer with shard_optimizer(true): a rank has a part of a parameter, and ",
      c10::demangle(typeid(optimizer).name()),
      " may need the whole; use torch::optim's Adam, AdamW, SGD, Adagrad or RMSprop, or "
      "MuonOptimizer::of(), or do not shard");
  for (const OwnedMaster& master : masters) {
    const int64_t own = master.elements.numel();
    LOCKSTEP_CHECK(muon == nullptr || !muon->is_matrix(master.elements) || own == 0 ||
                       own == master.whole.numel(),
                   "MuonOptimizer with shard_optimizer(true): a rank has a part of a matrix; make "
                   "the optimizer with MuonOptimizer::of()");
  }
}

}  // namespace lockstep::detail
