#pragma once

#include <lockstep/amp/impl/cuda_kernels.h>
#include <lockstep/amp/impl/flat_span.h>
#include <lockstep/amp/update/cpu_update.h>

#include <memory>
#include <string>
#include <vector>

namespace lockstep::amp {

/// The UpdateRule of one update functor (AdamWUpdate, ...): checks the span, picks the device.
template <typename Update>
class FlatRule final : public UpdateRule {
 public:
  FlatRule(const Update& update, MomentFormat format) : update_(update), format_(format) {}

  int moments() const override { return Update::kMoments; }
  MomentFormat moment_format() const override { return format_; }
  bool whole_parameters() const override { return Update::kWholeParameters; }

  std::vector<std::string> moment_names() const override {
    return {Update::kMomentNames.begin(), Update::kMomentNames.end()};
  }

  void apply(const FlatSpan& span, const StepState* state) const override {
    if (span.gradient.is_cuda()) {
      apply_all({span}, state);
      return;
    }
    check_span(span, Update::kMoments);
    update_on_cpu(update_, span, step_of(span, *state));
  }

  void apply_all(const std::vector<FlatSpan>& spans, const StepState* state) const override {
    if (spans.empty() || !spans.front().gradient.is_cuda()) {
      UpdateRule::apply_all(spans, state);
      return;
    }
    for (const FlatSpan& span : spans) {
      check_span(span, Update::kMoments);
      check_cuda_span(span);
    }
    update_on_cuda(update_, spans, state);
  }

 private:
  Update update_;
  MomentFormat format_;
};

template <typename Update>
std::shared_ptr<const UpdateRule> flat_rule(const Update& update,
                                            MomentFormat format = MomentFormat::fp32) {
  return std::make_shared<FlatRule<Update>>(update, format);
}

}  // namespace lockstep::amp
