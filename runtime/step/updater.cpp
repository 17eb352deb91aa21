#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <lockstep/amp/impl/flat_span.h>
#include <lockstep/amp/optimizers.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/device_watch.h>
#include <lockstep/runtime/step/impl/span.h>
#include <lockstep/runtime/step/impl/updater.h>
#include <lockstep/runtime/step/own/state_stream.h>
#include <lockstep/runtime/storage/impl/flat.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

namespace lockstep::detail {

void Updater::visit_rates(StateArchive& archive) {
  const std::string name = "torch_optimizer.factor";
  if (!archive.loading()) {
    take_edited_rates();
  }
  learning_rates().visit_state(archive);
  double factor = archive.saving() ? shown_factor() : 1.0;
  if (archive.saving() ? factor != 1.0 : archive.has(name)) {
    archive.real(name, factor);
  }
  if (archive.loading()) {
    set_shown_factor(factor);
    show_rates();
  }
}

namespace {

class FusedUpdater final : public Updater {
 public:
  FusedUpdater(const FusedOptimizer& spec, const Reducer& reducer, Arena& arena,
               const UpdaterOptions& options)
      : arena_(arena), rates_(configured_rates(spec), arena.buckets().front().weights.device()) {
    if (options.counts_by_parameter) {
      start_counting(reducer.parameters().size());
    }
    for (size_t b = 0; b < reducer.size(); ++b) {
      rules_.push_back(spec.rule(reducer.plans()[b].group));
      spans_.push_back(span_of(reducer, arena, b, options));
      amp::add_moments(spans_.back(), *rules_.back());
      if (options.offloads) {
        for (at::Tensor& moment : spans_.back().moments) {
          moment = copy_on_host(moment);
        }
      }
      if (amp::is_double(spans_.back())) {
        spans_.back().gradient_scale = double_scale(options);
      }
      spans_.back().learning_rate = rates_.on_device().narrow(0, reducer.plans()[b].group, 1);
      add_to_calls(reducer, b, options.offloads);
    }
    if (options.offloads) {
      states_.emplace(spans_, spans_.front().gradient.device());
    }
  }

  void apply(const Reducer& reducer, const Decisions& decisions,
             const std::vector<char>& used) override {
    const StepSpan span(kUpdate);
    std::vector<Work> shared;
    const amp::StepState* state = decisions.step();
    if (double_scale_.defined()) {
      double_scale_.mutable_data_ptr<double>()[0] = decisions.gradient_factor_on_host();
    }
    for (const std::vector<size_t>& call : calls_) {
      std::vector<amp::FlatSpan> moving;
      for (const size_t b : call) {
        const amp::FlatSpan& whole = states_ ? states_->fetch(spans_[b]) : spans_[b];
        if (used.empty() && !missed_.defined() && !rules_[b]->whole_parameters()) {
          moving.push_back(whole);
        } else {
          add_slots(moving, reducer.plans()[b], b, whole, state, used);
        }
      }
      rules_[call.front()]->apply_all(moving, state);
      if (states_) {
        states_->give_back();
      }
      for (const size_t b : call) {
        shared.push_back(arena_.share_weights(b));
      }
    }
    if (states_) {
      states_->finish();
    }
    count_missed(used, decisions);
    for (Work& work : shared) {
      work.wait();
    }
  }

  void visit_state(const Reducer& reducer, StateArchive& archive) override {
    for (size_t b = 0; b < spans_.size(); ++b) {
      for (const Slot& slot : reducer.plans()[b].slots) {
        visit_slot(b, slot, reducer.parameters()[static_cast<size_t>(slot.parameter)], archive);
      }
    }
    visit_missed(reducer.parameters(), archive);
  }

  LearningRates& learning_rates() override { return rates_; }

  int64_t moment_bytes() const override {
    int64_t bytes = 0;
    for (const amp::FlatSpan& span : spans_) {
      for (const at::Tensor& moment : span.moments) {
        bytes += static_cast<int64_t>(moment.nbytes());
      }
    }
    return bytes;
  }

 private:
  /// On a device one call updates all buckets of a group. On the host, with sharded weights, and
  /// with states on the host, each bucket has a call of its own: its weights or states travel while
  /// the next one is updated.
  void add_to_calls(const Reducer& reducer, size_t b, bool offloads) {
    const auto same_group = [&](const std::vector<size_t>& call) {
      return reducer.plans()[call.front()].group == reducer.plans()[b].group;
    };
    const auto call = std::find_if(calls_.begin(), calls_.end(), same_group);
    if (spans_[b].gradient.is_cpu() || arena_.sharded() || offloads || call == calls_.end()) {
      calls_.push_back({b});
    } else {
      call->push_back(b);
    }
  }

  static std::vector<double> configured_rates(const FusedOptimizer& spec) {
    std::vector<double> rates;
    rates.reserve(static_cast<size_t>(spec.groups()));
    for (int group = 0; group < spec.groups(); ++group) {
      rates.push_back(spec.learning_rate(group));
    }
    return rates;
  }

  /// Factor and limit of the gradients of fp64 parameters.
  const at::Tensor& double_scale(const UpdaterOptions& options) {
    if (!double_scale_.defined()) {
      double_scale_ = at::tensor({1.0, options.clip_value}, at::kDouble);
    }
    return double_scale_;
  }

  void start_counting(size_t parameters) {
    missed_ = at::zeros({static_cast<int64_t>(parameters)},
                        rates_.on_device().options().dtype(at::kLong));
  }

  /// Counts on the device, because only the device knows whether this update is skipped.
  void count_missed(const std::vector<char>& used, const Decisions& decisions) {
    if (!missed_.defined() || std::find(used.begin(), used.end(), 0) == used.end()) {
      return;
    }
    const at::Tensor unused = host_memory_for(missed_.device(), {missed_.numel()}, at::kLong);
    std::transform(used.begin(), used.end(), unused.mutable_data_ptr<int64_t>(),
                   [](char one) { return one == 0 ? 1 : 0; });
    const at::Tensor counted = decisions.skipped().to(at::kLong).neg().add(1);
    missed_.add_(unused.to(missed_.device(), /*non_blocking=*/true).mul(counted));
  }

  /// Visits only counts above 0, so that a run without missed updates can load any snapshot.
  void visit_missed(const std::vector<ModelTensor>& parameters, StateArchive& archive) {
    std::vector<int64_t> missed(parameters.size(), 0);
    if (missed_.defined()) {
      const at::Tensor host = missed_.cpu();
      std::copy_n(host.const_data_ptr<int64_t>(), missed.size(), missed.begin());
    }
    bool any = false;
    for (size_t i = 0; i < missed.size(); ++i) {
      const std::string name = parameters[i].name + ".missed_updates";
      if (archive.saving() ? missed[i] != 0 : archive.has(name)) {
        archive.number(name, missed[i]);
        any = any || missed[i] != 0;
      } else {
        missed[i] = 0;
      }
    }
    if (archive.loading() && (any || missed_.defined())) {
      start_counting(missed.size());
      missed_.copy_(at::tensor(missed, at::kLong));
    }
  }

  /// This rank's part of a slot.
  struct Part {
    int64_t begin;  // elements from the start of the slot
    amp::FlatSpan span;
    bool empty() const { return span.gradient.numel() == 0; }
  };
  Part part_of(size_t b, const Slot& slot, const amp::FlatSpan& whole) const {
    const Shard::Part part = arena_.buckets()[b].share.part_of(slot);
    return {part.in_slot, amp::narrowed(whole, part.in_shard, part.numel)};
  }

  /// Adds the used parameters of a bucket, which is `whole`, to `moving`; moves the averages of the
  /// others at once.
  void add_slots(std::vector<amp::FlatSpan>& moving, const BucketPlan& plan, size_t b,
                 const amp::FlatSpan& whole, const amp::StepState* state,
                 const std::vector<char>& used) {
    for (const Slot& slot : plan.slots) {
      const Part part = part_of(b, slot, whole);
      if (part.empty()) {
        continue;
      }
      if (used.empty() || used[static_cast<size_t>(slot.parameter)] != 0) {
        moving.push_back(part.span);
        if (missed_.defined()) {
          moving.back().missed = missed_.narrow(0, slot.parameter, 1);
        }
      } else {
        amp::move_average(part.span, state);
      }
    }
  }

  void visit_slot(size_t b, const Slot& slot, const ModelTensor& entry, StateArchive& archive) {
    const Part part = part_of(b, slot, spans_[b]);
    if (part.empty() && archive.loading()) {
      return;
    }
    const std::vector<std::string> kinds = rules_[b]->moment_names();
    for (size_t m = 0; m < kinds.size(); ++m) {
      const std::string name = entry.name + "." + kinds[m];
      visit_part(archive, name, part.span.moments[m], part.begin, real_view(entry.tensor));
    }
  }

  /// Visits whole tensors if nothing is sharded, so that other programs read them in their shape.
  void visit_part(StateArchive& archive, const std::string& name, const at::Tensor& elements,
                  int64_t begin, const at::Tensor& like) const {
    if (arena_.sharded()) {
      archive.part(name, elements, begin, like);
    } else {
      archive.tensor(name, shaped_view(elements, 0, like));
    }
  }

  Arena& arena_;
  LearningRates rates_;
  at::Tensor missed_;        // by parameter: updates without it; undefined if not counted
  at::Tensor double_scale_;  // undefined without fp64 parameters
  std::vector<amp::FlatSpan> spans_;
  std::vector<std::shared_ptr<const amp::UpdateRule>> rules_;
  std::vector<std::vector<size_t>> calls_;  // buckets that one call updates
  std::optional<StateStream> states_;       // if they are in host memory
};

}  // namespace

amp::FlatSpan span_of(const Reducer& reducer, const Arena& arena, size_t b,
                      const UpdaterOptions& options) {
  const Arena::Bucket& bucket = arena.buckets()[b];
  amp::FlatSpan span;
  span.gradient = reducer.gradient(b, bucket.share);
  span.master = bucket.masters;
  if (!bucket.masters.defined() || !bucket.masters.is_alias_of(bucket.published)) {
    span.weight = bucket.published.narrow(0, bucket.share.begin, bucket.share.numel);
  }
  span.remainder = bucket.remainders;
  span.average = bucket.average;
  span.average_rest = options.average_rest;
  span.rounds_randomly = options.rounds_randomly && !span.master.defined();
  span.stream = options.seed << 20U ^ b;
  span.first_element = bucket.share.begin;
  return span;
}

void Updater::update(const Reducer& reducer, const Decisions& decisions,
                     const std::vector<char>& used, const Agreement& hosts) {
  if (!may_throw()) {
    apply(reducer, decisions, used);
    return;
  }
  hosts.attempt("the optimizer's step", [&] { apply(reducer, decisions, used); });
  share_weights();
}

std::unique_ptr<Updater> Updater::make(const OptimizerSpec& spec, const Reducer& reducer,
                                       Arena& arena, const UpdaterOptions& options) {
  if (const FusedOptimizer* fused = spec.fused()) {
    return std::make_unique<FusedUpdater>(*fused, reducer, arena, options);
  }
  LOCKSTEP_CHECK(spec.by_torch() != nullptr, "no updater for the optimizer ", spec.describe());
  return make_torch_updater(*spec.by_torch(), reducer, arena, options);
}

}  // namespace lockstep::detail
