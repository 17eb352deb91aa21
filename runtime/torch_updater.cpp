#include <ATen/ops/empty.h>
#include <lockstep/collectives/cast_kernels.h>
#include <lockstep/runtime/flat.h>
#include <lockstep/runtime/torch_optimizer_state.h>
#include <lockstep/runtime/updater.h>
#include <torch/optim/optimizer.h>

namespace lockstep {
namespace {

/// Runs a torch::optim optimizer on the masters: gradients are unscaled into fp32, the optimizer
/// steps, and the model's weights are cast from the masters.
class TorchUpdater final : public Updater {
 public:
  TorchUpdater(std::unique_ptr<torch::optim::Optimizer> optimizer, std::vector<at::Tensor> masters,
               const Arena& arena)
      : optimizer_(std::move(optimizer)), masters_(std::move(masters)), arena_(arena) {
    for (const auto& group : optimizer_->param_groups()) {
      learning_rates_.push_back(group.options().get_lr());
    }
  }

  void apply(const Reducer& reducer, const amp::StepState& state,
             const std::vector<char>& used) override {
    for (size_t b = 0; b < reducer.size(); ++b) {
      unscale(reducer, b, state.gradient_factor, used);
    }
    for (size_t g = 0; g < learning_rates_.size(); ++g) {
      optimizer_->param_groups()[g].options().set_lr(learning_rates_[g] *
                                                     state.learning_rate_factor);
    }
    optimizer_->step();
    optimizer_->zero_grad();
    for (const Arena::Bucket& bucket : arena_.buckets()) {
      if (!bucket.masters.is_same(bucket.weights)) {
        bucket.weights.copy_(bucket.masters);
      }
    }
  }

  void visit_state(const Reducer& reducer, StateArchive& archive) override {
    for (size_t i = 0; i < masters_.size(); ++i) {
      visit_torch_state(*optimizer_, masters_[i], reducer.parameters()[i].name, archive);
    }
  }

  int64_t moment_bytes() const override { return 0; }

 private:
  void unscale(const Reducer& reducer, size_t b, float factor, const std::vector<char>& used) {
    const at::Tensor& wire = reducer.wire(b);
    const at::Tensor gradient = wire.scalar_type() == at::kFloat
                                    ? wire
                                    : at::empty({wire.numel()}, wire.options().dtype(at::kFloat));
    kernels::cast_scaled(gradient.mutable_data_ptr(), at::kFloat, wire.const_data_ptr(),
                         wire.scalar_type(), wire.numel(), factor);
    for (const Slot& slot : reducer.plans()[b].slots) {
      const auto index = static_cast<size_t>(slot.parameter);
      if (used.empty() || used[index] != 0) {
        masters_[index].mutable_grad() = shaped_view(gradient, slot.offset, masters_[index]);
      }
    }
  }

  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::vector<at::Tensor> masters_;
  const Arena& arena_;
  std::vector<double> learning_rates_;
};

}  // namespace

std::unique_ptr<Updater> make_torch_updater(const OptimizerSpec& spec, const Reducer& reducer,
                                            const Arena& arena) {
  std::vector<at::Tensor> masters = master_views(reducer, arena);
  std::unique_ptr<torch::optim::Optimizer> optimizer = spec.build(masters);
  if (optimizer == nullptr) {
    return nullptr;
  }
  for (const Arena::Bucket& bucket : arena.buckets()) {
    LOCKSTEP_CHECK(bucket.masters.defined(),
                   "TorchOptimizer needs fp32 masters; O3 has none: use O2, or a fused optimizer");
  }
  return std::make_unique<TorchUpdater>(std::move(optimizer), std::move(masters), arena);
}

}  // namespace lockstep
