#include <c10/core/GradMode.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Type.h>
#include <lockstep/checkpointing/activation/impl/region.h>
#include <lockstep/checkpointing/activation/recompute/slot_filler.h>
#include <lockstep/checkpointing/activation/recomputing.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <torch/csrc/autograd/graph_task.h>

#include <utility>

namespace lockstep::activation {

/// Held by a node of forward's graph in place of a saved tensor.
class Region::Holder final : public torch::autograd::SavedVariableHooks {
 public:
  explicit Holder(std::shared_ptr<Region> region) : region_(std::move(region)) {}
  ~Holder() override {
    if (slot_.has_value()) {
      region_->release(*slot_);
    }
  }
  void call_pack_hook(const at::Tensor& tensor) override { slot_ = region_->add_slot(tensor); }
  at::Tensor call_unpack_hook() override { return region_->unpack(slot_.value()); }

 private:
  std::shared_ptr<Region> region_;
  std::optional<std::size_t> slot_;
};

Region::Forward::Forward(Region& region) : region_(region), hooks_(&region) {
  if (region.options_.debug()) {
    trace_.emplace(region.forward_operators_);
  }
  if (is_recomputing()) {
    scratch_.emplace(region.buffers());
  }
}

void Region::Forward::finish() {
  region_.check_inputs_unchanged("inside the region");
  region_.forward_finished_ = true;
}

bool Region::wanted() {
  return c10::GradMode::is_enabled() && !c10::InferenceMode::is_enabled();
}

Region::Region(CheckpointOptions options)
    : options_(std::move(options)),
      early_stop_(EarlyStop::in_force().value_or(options_.early_stop())),
      execution_(ExecutionState::current()) {
  if (options_.preserve_rng()) {
    rng_ = RngState::current();
  }
}

std::unique_ptr<torch::autograd::SavedVariableHooks> Region::make() {
  return std::make_unique<Holder>(shared_from_this());
}

void Region::save_input(const at::Tensor& input) {
  inputs_.push_back({torch::autograd::SavedVariable(input, /*is_output=*/false),
                     TensorIdentity(input), input.defined() && input.requires_grad()});
}

void Region::add_kept(KeptCall call) {
  if (options_.preserve_rng()) {
    call.rng_after = RngState::current();
  }
  kept_.push_back(std::move(call));
}

std::size_t Region::add_slot(const at::Tensor& tensor) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  SavedSlot& slot = slots_.emplace_back(tensor);
  if (retained_) {
    slot.recomputed = LateFill::detached(tensor);
    slot.recomputed_version = slot.version;
  }
  return slots_.size() - 1;
}

void Region::release(std::size_t slot) noexcept {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  slots_[slot].needed = false;
  slots_[slot].recomputed.reset();
}

at::Tensor Region::unpack(std::size_t slot) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (!retained_) {
    const int graph_task = torch::autograd::get_current_graph_task_id();
    if (graph_task != std::exchange(graph_task_, graph_task)) {
      drop_recomputed();
    }
    if (!slots_[slot].recomputed.defined()) {
      recompute();
    }
  }
  SavedSlot& saved = slots_[slot];
  at::Tensor tensor = retained_ ? saved.recomputed : std::move(saved.recomputed);
  LOCKSTEP_CHECK(tensor.defined(), name(), ": recompute did not save slot ", slot, " (",
                 saved.layout.text(), "), which backward needs");
  LOCKSTEP_CHECK(tensor._version() == saved.recomputed_version, name(), ": slot ", slot, " (",
                 saved.layout.text(),
                 ") is modified in place, inside the region, after an operator saved it for "
                 "backward: use the operator that is not in place");
  return tensor;
}

void Region::recompute() {
  try {
    check_inputs_unchanged("after forward");
    SlotFiller filler(slots_, kept_,
                      {options_.determinism_check(), early_stop_, forward_finished_});
    fill_slots(filler);
    filler.check_count();
  } catch (const Mismatch& mismatch) {
    drop_recomputed();
    throw Error(c10::str(name(), ": ", mismatch.what(), trace_report()));
  } catch (...) {
    drop_recomputed();
    throw;
  }
}

void Region::fill_slots(SlotFiller& filler) {
  const std::vector<at::Tensor> inputs = unpack_inputs();
  std::optional<RngGuard> rng;
  if (rng_.has_value()) {
    rng.emplace(*rng_);
  }
  const ExecutionGuard execution(execution_);
  const RecomputingScope recomputing;
  const ScratchBuffers scratch(buffers());
  const HookScope hooks(&filler);
  std::optional<OperatorTrace> trace;
  if (options_.debug()) {
    recompute_operators_.clear();
    trace.emplace(recompute_operators_);
  }
  try {
    run_again(inputs);
  } catch (...) {
    filler.rethrow_unless_stopped();
  }
}

std::vector<at::Tensor> Region::unpack_inputs() {
  std::vector<at::Tensor> inputs;
  inputs.reserve(inputs_.size());
  for (const Input& input : inputs_) {
    const at::Tensor tensor = input.saved.unpack();
    if (!tensor.defined()) {
      inputs.push_back(tensor);
    } else if (!input.requires_grad && tensor.dim() == 1) {
      inputs.push_back(tensor.detach().clone());  // running statistics, which batch norm updates
    } else {
      inputs.push_back(tensor.detach().set_requires_grad(input.requires_grad));
    }
  }
  return inputs;
}

void Region::check_inputs_unchanged(const char* when) const {
  for (std::size_t i = 0; i < inputs_.size(); ++i) {
    const TensorIdentity& identity = inputs_[i].identity;
    LOCKSTEP_CHECK(identity.current_version() == identity.version(), name(), ": input ", i,
                   " is modified in place ", when, " (version ", identity.version(), ", now ",
                   identity.current_version(),
                   "), so it cannot be computed again: give the region a clone of it");
  }
}

void Region::drop_retained() noexcept {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  retained_ = false;
  drop_recomputed();
}

void Region::drop_recomputed() noexcept {
  for (SavedSlot& slot : slots_) {
    slot.recomputed.reset();
  }
}

std::vector<at::Tensor> Region::buffers() const {
  std::vector<at::Tensor> buffers = module_buffers();
  buffers.insert(buffers.end(), options_.buffers().begin(), options_.buffers().end());
  return buffers;
}

std::string Region::name() const {
  return c10::str("checkpoint of ", options_.name().empty() ? c10::demangle(function_type().name())
                                                            : "'" + options_.name() + "'");
}

std::string Region::trace_report() const {
  if (!options_.debug()) {
    return "; CheckpointOptions().debug(true) names the operator";
  }
  return "; " + first_difference(forward_operators_, recompute_operators_);
}

}  // namespace lockstep::activation
