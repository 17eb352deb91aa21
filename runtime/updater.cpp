#include <lockstep/amp/average.h>
#include <lockstep/amp/flat_span.h>
#include <lockstep/runtime/updater.h>

#include <algorithm>

namespace lockstep {
namespace {

class FusedUpdater final : public Updater {
 public:
  FusedUpdater(const OptimizerSpec& spec, const Reducer& reducer, Arena& arena,
               const UpdaterOptions& options)
      : arena_(arena) {
    for (size_t b = 0; b < reducer.size(); ++b) {
      rules_.push_back(spec.rule(reducer.plans()[b].group));
      spans_.push_back(span_of(reducer, arena, b, options));
      amp::add_moments(spans_.back(), *rules_.back());
      LOCKSTEP_CHECK(!arena.sharded() || !rules_.back()->whole_parameters(), spec.describe(),
                     ": its update of an element depends on the whole parameter, of which a rank "
                     "has a share only with shard_optimizer(true); use another optimizer, or do "
                     "not shard");
    }
  }

  void apply(const Reducer& reducer, const amp::StepState& state,
             const std::vector<char>& used) override {
    std::vector<Work> shared;
    for (size_t b = 0; b < spans_.size(); ++b) {
      if (used.empty() && !rules_[b]->whole_parameters()) {
        rules_[b]->apply(spans_[b], &state);
      } else {
        apply_by_slot(reducer.plans()[b], b, state, used);
      }
      shared.push_back(arena_.share_weights(b));
    }
    for (Work& work : shared) {
      work.wait();
    }
  }

  void visit_state(const Reducer& reducer, StateArchive& archive) override {
    for (size_t b = 0; b < spans_.size(); ++b) {
      const std::vector<std::string> kinds = rules_[b]->moment_names();
      for (const Slot& slot : reducer.plans()[b].slots) {
        const ModelTensor& entry = reducer.parameters()[static_cast<size_t>(slot.parameter)];
        const amp::FlatSpan part = amp::narrowed(spans_[b], slot.offset, slot.numel);
        for (size_t m = 0; m < kinds.size(); ++m) {
          const std::string name = entry.name + "." + kinds[m];
          archive.tensor(name, shaped_view(part.moments[m], 0, entry.tensor));
          if (!part.moment_scales.empty()) {
            archive.tensor(name + "_scale", part.moment_scales[m]);
          }
        }
      }
    }
  }

  int64_t moment_bytes() const override {
    int64_t bytes = 0;
    for (const amp::FlatSpan& span : spans_) {
      for (const auto* list : {&span.moments, &span.moment_scales}) {
        for (const at::Tensor& moment : *list) {
          bytes += static_cast<int64_t>(moment.nbytes());
        }
      }
    }
    return bytes;
  }

 private:
  void apply_by_slot(const BucketPlan& plan, size_t b, const amp::StepState& state,
                     const std::vector<char>& used) {
    const Shard& share = arena_.buckets()[b].share;
    for (const Slot& slot : plan.slots) {
      const int64_t begin = std::max(slot.offset, share.begin);
      const int64_t end = std::min(slot.offset + slot.numel, share.begin + share.numel);
      if (begin >= end) {
        continue;
      }
      const amp::FlatSpan part = amp::narrowed(spans_[b], begin - share.begin, end - begin);
      if (used.empty() || used[static_cast<size_t>(slot.parameter)] != 0) {
        rules_[b]->apply(part, &state);
      } else {
        amp::move_average(part);
      }
    }
  }

  Arena& arena_;
  std::vector<amp::FlatSpan> spans_;
  std::vector<std::shared_ptr<const amp::UpdateRule>> rules_;
};

}  // namespace

amp::FlatSpan span_of(const Reducer& reducer, const Arena& arena, size_t b,
                      const UpdaterOptions& options) {
  const Arena::Bucket& bucket = arena.buckets()[b];
  amp::FlatSpan span;
  span.gradient = reducer.wire(b).narrow(0, bucket.share.begin, bucket.share.numel);
  span.master = bucket.masters;
  if (bucket.weights.scalar_type() != at::kFloat) {
    span.weight = bucket.weights.narrow(0, bucket.share.begin, bucket.share.numel);
  }
  span.remainder = bucket.remainders;
  span.average = bucket.average;
  span.average_rest = options.average_rest;
  span.rounds_randomly = options.rounds_randomly && !span.master.defined();
  span.stream = options.seed << 20U ^ b;
  span.first_element = bucket.share.begin;
  return span;
}

std::unique_ptr<Updater> Updater::make(const OptimizerSpec& spec, const Reducer& reducer,
                                       Arena& arena, const UpdaterOptions& options) {
  if (auto updater = make_torch_updater(spec, reducer, arena, options)) {
    return updater;
  }
  return std::make_unique<FusedUpdater>(spec, reducer, arena, options);
}

}  // namespace lockstep
