#include <lockstep/amp/flat_span.h>
#include <lockstep/runtime/flat.h>
#include <lockstep/runtime/updater.h>

namespace lockstep {
namespace {

class FusedUpdater final : public Updater {
 public:
  FusedUpdater(const OptimizerSpec& spec, const Reducer& reducer, const Arena& arena) {
    for (size_t b = 0; b < reducer.size(); ++b) {
      const BucketPlan& plan = reducer.plans()[b];
      const Arena::Bucket& bucket = arena.buckets()[b];
      amp::FlatSpan span;
      span.gradient = reducer.wire(b);
      span.master = bucket.masters;
      if (plan.weight_dtype != at::kFloat) {
        span.weight = bucket.weights;
      }
      rules_.push_back(spec.rule(plan.group));
      span.stream = b;
      amp::add_moments(span, *rules_.back());
      spans_.push_back(std::move(span));
    }
  }

  void apply(const Reducer& reducer, const amp::StepState& state,
             const std::vector<char>& used) override {
    for (size_t b = 0; b < spans_.size(); ++b) {
      if (used.empty() && !rules_[b]->whole_parameters()) {
        rules_[b]->apply(spans_[b], &state);
        continue;
      }
      for (const Slot& slot : reducer.plans()[b].slots) {
        if (used.empty() || used[static_cast<size_t>(slot.parameter)] != 0) {
          rules_[b]->apply(amp::narrowed(spans_[b], slot.offset, slot.numel), &state);
        }
      }
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
  std::vector<amp::FlatSpan> spans_;
  std::vector<std::shared_ptr<const amp::UpdateRule>> rules_;
};

}  // namespace

std::vector<at::Tensor> master_views(const Reducer& reducer, const Arena& arena) {
  std::vector<at::Tensor> views(reducer.parameters().size());
  for (size_t b = 0; b < reducer.size(); ++b) {
    const Arena::Bucket& bucket = arena.buckets()[b];
    const at::Tensor& source = bucket.masters.defined() ? bucket.masters : bucket.weights;
    for (const Slot& slot : reducer.plans()[b].slots) {
      const auto index = static_cast<size_t>(slot.parameter);
      views[index] = shaped_view(source, slot.offset, reducer.parameters()[index].tensor).detach();
    }
  }
  return views;
}

std::unique_ptr<Updater> Updater::make(const OptimizerSpec& spec, const Reducer& reducer,
                                       const Arena& arena) {
  if (auto updater = make_torch_updater(spec, reducer, arena)) {
    return updater;
  }
  return std::make_unique<FusedUpdater>(spec, reducer, arena);
}

}  // namespace lockstep
