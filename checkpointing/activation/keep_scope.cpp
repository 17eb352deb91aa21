#include <lockstep/checkpointing/activation/impl/keep_scope.h>
#include <lockstep/checkpointing/activation/impl/region.h>
#include <lockstep/checkpointing/activation/recompute/slot_filler.h>

#include <utility>

namespace lockstep::activation {

/// Holds a tensor that autograd saves inside keep(): an input through the region's hooks, else the
/// tensor itself.
class KeepScope::Holder final : public torch::autograd::SavedVariableHooks {
 public:
  explicit Holder(KeepScope& scope) : scope_(scope) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    std::optional<InputView> view = view_of_input(scope_.inputs_, tensor);
    if (!view.has_value()) {
      kept_ = KeptTensor(tensor);
      return;
    }
    in_region_ = scope_.region_->make();
    in_region_->call_pack_hook(tensor);
    scope_.recording_.saved_inputs.push_back(std::move(*view));
  }
  at::Tensor call_unpack_hook() override {
    return in_region_ ? in_region_->call_unpack_hook() : kept_.data();
  }

 private:
  KeepScope& scope_;  // valid only during the call of keep()
  KeptTensor kept_;
  std::unique_ptr<torch::autograd::SavedVariableHooks> in_region_;
};

bool KeepScope::wanted() {
  SavedTensorPolicy* policy = HookScope::top();
  return Region::wanted() &&
         (dynamic_cast<Region*>(policy) != nullptr || dynamic_cast<SlotFiller*>(policy) != nullptr);
}

KeepScope::KeepScope(std::vector<at::Tensor> inputs)
    : inputs_(std::move(inputs)), region_(HookScope::top()) {
  if (auto* filler = dynamic_cast<SlotFiller*>(region_)) {
    recorded_ = filler->next_kept();
    if (recorded_ != nullptr) {
      make_again(*filler);
    }
  } else {
    hooks_.emplace(this);
  }
}

void KeepScope::make_again(SavedTensorPolicy& filler) {
  filler.between_operators();
  for (const InputView& view : recorded_->saved_inputs) {
    filler.make()->call_pack_hook(view.of(inputs_.at(view.input)));
  }
  filler.between_operators();
  if (recorded_->rng_after.has_value()) {
    recorded_->rng_after->restore();
  }
}

at::Tensor KeepScope::take(const KeptTensor& kept) const {
  const at::Tensor& data = kept.data();
  return data.defined() ? data.detach().set_requires_grad(kept.requires_grad()) : data;
}

void KeepScope::keep(const at::Tensor& output) {
  recording_.tensors.emplace_back(output);
}

void KeepScope::finish(std::any result) {
  hooks_.reset();
  if (auto* region = dynamic_cast<Region*>(region_)) {
    recording_.result = std::move(result);
    region->add_kept(std::move(recording_));
  }
}

std::unique_ptr<torch::autograd::SavedVariableHooks> KeepScope::make() {
  return std::make_unique<Holder>(*this);
}

}  // namespace lockstep::activation
