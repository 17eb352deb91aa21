#pragma once

#include <lockstep/amp/optimizer.h>
#include <lockstep/amp/update/lamb_update.h>

#include <string>
#include <vector>

namespace lockstep::amp {

/// LAMB's UpdateRule: a span is one parameter, since the trust ratio is one.
class LambRule final : public UpdateRule {
 public:
  LambRule(const LambUpdate& update, MomentFormat format) : update_(update), format_(format) {}

  int moments() const override { return LambUpdate::kMoments; }
  std::vector<std::string> moment_names() const override {
    return {LambUpdate::kMomentNames.begin(), LambUpdate::kMomentNames.end()};
  }
  MomentFormat moment_format() const override { return format_; }
  bool whole_parameters() const override { return true; }
  void apply(const FlatSpan& span, const StepState* state) const override;
  void apply_all(const std::vector<FlatSpan>& spans, const StepState* state) const override;

 private:
  LambUpdate update_;
  MomentFormat format_;
};

}  // namespace lockstep::amp
