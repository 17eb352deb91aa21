#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/ops/empty.h>
#include <lockstep/amp/impl/flat_kernels.h>
#include <lockstep/amp/impl/flat_span.h>
#include <lockstep/amp/muon_optimizer.h>
#include <lockstep/amp/optimizers.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/step/impl/span.h>
#include <lockstep/runtime/step/impl/updater.h>
#include <lockstep/runtime/step/own/torch_optimizer_options.h>
#include <lockstep/runtime/step/own/torch_optimizer_state.h>
#include <lockstep/runtime/storage/impl/flat.h>
#include <torch/optim/optimizer.h>

#include <algorithm>

namespace lockstep::detail {
namespace {

/// Runs a torch::optim optimizer on the masters: gradients are unscaled into fp32, the optimizer
/// steps, and the model's weights are cast from the masters.
class TorchUpdater final : public Updater {
 public:
  TorchUpdater(std::unique_ptr<torch::optim::Optimizer> optimizer, std::vector<OwnedMaster> masters,
               Arena& arena, std::vector<amp::FlatSpan> spans, double clip_value)
      : optimizer_(std::move(optimizer)),
        masters_(std::move(masters)),
        arena_(arena),
        spans_(std::move(spans)),
        clip_value_(clip_value),
        rates_(configured_rates(*optimizer_), c10::kCPU),
        written_(rates_.all()) {}

  /// Waits for the device: the optimizer runs on the host, which must know whether to skip.
  void apply(const Reducer& reducer, const Decisions& decisions,
             const std::vector<char>& used) override {
    const StepSpan span(kUpdate);
    const amp::StepState state = decisions.step_on_host();
    if (state.skip) {
      return;
    }
    const double factor = has_doubles() ? decisions.gradient_factor_on_host() : 1.0;
    for (size_t b = 0; b < reducer.size(); ++b) {
      unscale(reducer, b, state, factor, used);
    }
    factor_ = state.learning_rate_factor;
    show_rates();
    optimizer_->step();
    optimizer_->zero_grad();
    for (const Arena::Bucket& bucket : arena_.buckets()) {
      if (!bucket.masters.is_alias_of(bucket.published)) {
        bucket.published.narrow(0, bucket.share.begin, bucket.share.numel).copy_(bucket.masters);
      }
    }
    for (const amp::FlatSpan& span : spans_) {  // before weights are shared: averages read them
      if (amp::is_double(span) && span.average.defined()) {
        span.average.lerp_(span.master, span.average_rest);
      } else {
        amp::move_average(span, decisions.step());
      }
    }
  }

  bool may_throw() const override { return true; }

  void share_weights() override {
    std::vector<Work> shared;
    for (size_t b = 0; b < arena_.buckets().size(); ++b) {
      shared.push_back(arena_.share_weights(b));
    }
    for (Work& work : shared) {
      work.wait();
    }
  }

  void visit_state(const Reducer& reducer, StateArchive& archive) override {
    for (size_t i = 0; i < masters_.size(); ++i) {
      visit_torch_state(*optimizer_, masters_[i], reducer.parameters()[i].name, archive);
    }
  }

  /// If every rank computes all matrix products of a MuonOptimizer on a CPU, also names what their
  /// bits depend on.
  std::string describe() const override {
    std::vector<at::Tensor> elements;
    for (const OwnedMaster& master : masters_) {
      elements.push_back(master.elements);
    }
    std::string text = describe_options(*optimizer_, elements);
    if (dynamic_cast<const MuonOptimizer*>(optimizer_.get()) != nullptr && !arena_.sharded() &&
        elements.front().is_cpu()) {
      text += c10::str("; ", at::get_num_threads(), " compute threads (OMP_NUM_THREADS) on ",
                       at::get_cpu_capability());
    }
    return text;
  }

  int64_t moment_bytes() const override { return 0; }

  LearningRates& learning_rates() override { return rates_; }

  /// The optimizer's options hold rates times the schedule's factor, and so do edited ones.
  void take_edited_rates() override {
    for (size_t g = 0; g < written_.size(); ++g) {
      const double found = optimizer_->param_groups()[g].options().get_lr();
      if (found != written_[g]) {
        rates_.set(factor_ > 0.0 ? found / factor_ : found, static_cast<int>(g));
        written_[g] = found;
      }
    }
  }

  double shown_factor() const override { return factor_; }
  void set_shown_factor(double factor) override { factor_ = factor; }

  void show_rates() override {
    for (size_t g = 0; g < written_.size(); ++g) {
      written_[g] = rates_.all()[g] * factor_;
      optimizer_->param_groups()[g].options().set_lr(written_[g]);
    }
  }

 private:
  static std::vector<double> configured_rates(const torch::optim::Optimizer& optimizer) {
    std::vector<double> rates;
    for (const auto& group : optimizer.param_groups()) {
      rates.push_back(group.options().get_lr());
    }
    return rates;
  }

  bool has_doubles() const { return std::any_of(spans_.begin(), spans_.end(), amp::is_double); }

  /// `factor`: for fp64 masters.
  void unscale(const Reducer& reducer, size_t b, const amp::StepState& state, double factor,
               const std::vector<char>& used) {
    const Shard& share = arena_.buckets()[b].share;
    const at::Tensor wire = reducer.gradient(b, share);
    const bool wide = amp::is_double(spans_[b]);
    const at::ScalarType dtype = wide ? at::kDouble : at::kFloat;
    const at::Tensor gradient =
        wire.scalar_type() == dtype ? wire : at::empty({wire.numel()}, wire.options().dtype(dtype));
    const double limit = wide ? clip_value_ : state.gradient_limit;
    amp::cast_flat(gradient, wire, wide ? factor : state.gradient_factor);
    gradient.clamp_(-limit, limit);
    for (const Slot& slot : reducer.plans()[b].slots) {
      const auto index = static_cast<size_t>(slot.parameter);
      if (used.empty() || used[index] != 0) {
        const at::Tensor& master = masters_[index].elements;
        master.mutable_grad() = shaped_view(gradient, share.part_of(slot).in_shard, master);
      }
    }
  }

  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::vector<OwnedMaster> masters_;  // by parameter
  Arena& arena_;
  std::vector<amp::FlatSpan> spans_;  // for averages
  double clip_value_;                 // of fp64 masters
  LearningRates rates_;
  std::vector<double> written_;  // the rates in the optimizer's options
  double factor_ = 1.0;          // of the schedule in them
};

/// `own`: the elements of `slot` in a flat array of this rank's shard.
OwnedMaster owned_master(const at::Tensor& flat, const Slot& slot, const Shard::Part& own,
                         const at::Tensor& parameter, bool is_sharded) {
  OwnedMaster master{{}, parameter.detach(), own.in_slot, is_sharded};
  if (own.numel == slot.numel) {
    master.elements = shaped_view(flat, own.in_shard, parameter).detach();
  } else {
    std::vector<int64_t> sizes(static_cast<size_t>(std::max<int64_t>(parameter.dim(), 1)), 1);
    sizes.back() = own.numel;
    const at::Tensor like = at::empty(sizes, flat.options().device(at::kMeta));
    master.elements = shaped_view(flat, own.in_shard, like).detach();
  }
  return master;
}

std::vector<OwnedMaster> owned_masters(const Reducer& reducer, const Arena& arena) {
  std::vector<OwnedMaster> masters(reducer.parameters().size());
  for (size_t b = 0; b < reducer.size(); ++b) {
    const Arena::Bucket& bucket = arena.buckets()[b];
    const at::Tensor flat =
        bucket.masters.defined()
            ? bucket.masters
            : bucket.published.narrow(0, bucket.share.begin, bucket.share.numel);
    for (const Slot& slot : reducer.plans()[b].slots) {
      const auto index = static_cast<size_t>(slot.parameter);
      masters[index] =
          owned_master(flat, slot, bucket.share.part_of(slot),
                       real_view(reducer.parameters()[index].tensor.detach()), arena.sharded());
    }
  }
  return masters;
}

/// Refuses complex parameters: the real view of a complex vector looks like a matrix to Muon.
void require_real_matrices(const torch::optim::Optimizer& optimizer,
                           const std::vector<ModelTensor>& parameters,
                           const std::vector<at::Tensor>& masters) {
  const auto* muon = dynamic_cast<const MuonOptimizer*>(&optimizer);
  for (size_t i = 0; muon != nullptr && i < masters.size(); ++i) {
    LOCKSTEP_CHECK(!parameters[i].tensor.is_complex() || !muon->is_matrix(masters[i]),
                   "MuonOptimizer: parameter ", parameters[i].name, " is ",
                   parameters[i].tensor.scalar_type(),
                   ", and Muon is not defined for complex parameters: pass it with the rest");
  }
}

}  // namespace

std::unique_ptr<Updater> make_torch_updater(const TorchOptimizer& spec, const Reducer& reducer,
                                            Arena& arena, const UpdaterOptions& options) {
  std::vector<OwnedMaster> masters = owned_masters(reducer, arena);
  std::vector<at::Tensor> elements;
  for (const OwnedMaster& master : masters) {
    elements.push_back(master.elements);
  }
  std::unique_ptr<torch::optim::Optimizer> optimizer = spec.build(elements);
  require_real_matrices(*optimizer, reducer.parameters(), elements);
  if (arena.sharded()) {
    require_updates_shards(*optimizer, masters);
  }
  std::vector<amp::FlatSpan> spans;
  for (size_t b = 0; b < reducer.size(); ++b) {
    spans.push_back(span_of(reducer, arena, b, options));
  }
  for (const Arena::Bucket& bucket : arena.buckets()) {
    LOCKSTEP_CHECK(bucket.masters.defined(),
                   "TorchOptimizer needs fp32 masters; O3 and remainders have none: use O2, or a "
                   "fused optimizer");
  }
  return std::make_unique<TorchUpdater>(std::move(optimizer), std::move(masters), arena,
                                        std::move(spans), options.clip_value);
}

}  // namespace lockstep::detail
