// Kernels take a span's own learning rate and count of updates from memory when they run.
#include "device_spans.h"
#include "emulated_launches.h"
#include "guarded_tensors.h"
#include "test_names.h"
#include "update_samples.h"

#include <lockstep/amp/cuda/launch.h>
#include <lockstep/amp/optimizers.h>
#include <lockstep/amp/update/flat_rule.h>

namespace lockstep {
namespace {

constexpr double kOwnRate = 3e-3;

amp::StepState at_update(int64_t update) {
  amp::StepState state;
  state.update = update;
  state.gradient_factor = 0.5F;
  state.learning_rate_factor = 0.75F;
  return state;
}

amp::FlatSpan with_own(amp::FlatSpan span, int64_t missed) {
  span.learning_rate = at::full({1}, kOwnRate, at::kDouble);
  span.missed = at::full({1}, missed, at::kLong);
  return span;
}

/// What `rule` makes of `before`, in host memory.
amp::FlatSpan updated(const amp::UpdateRule& rule, const amp::FlatSpan& before, int64_t update) {
  const amp::FlatSpan span = deep_copy(before);
  const amp::StepState state = at_update(update);
  rule.apply(span, &state);
  return span;
}

/// In host memory and by the device's kernels: a span with its own rate, that missed 4 of 7
/// updates, moves as the third update of a rule with that rate.
template <typename Update>
void expect_own_rate_and_count() {
  at::manual_seed(4);
  auto update = sample<Update>();
  auto update_at_own_rate = update;
  rate_of(update) = 1.0;
  rate_of(update_at_own_rate) = kOwnRate;
  for (const SpanForm& form : span_forms()) {
    const auto rule = amp::flat_rule(update, form.moments);
    const amp::FlatSpan before = span_in_form(form, 5003, *rule);
    const amp::FlatSpan expected =
        updated(*amp::flat_rule(update_at_own_rate, form.moments), before, 3);
    EXPECT_FALSE(same_bits(expected, updated(*rule, before, 3)));
    EXPECT_TRUE(same_bits(expected, updated(*rule, with_own(before, 4), 7)));
    for_each_device([&] {
      const amp::FlatSpan found = with_own(guarded_copy(before), 4);
      const amp::StepState state = at_update(7);
      expect_well(launch_update(update, amp::arrays_of<float>(found), &state));
      EXPECT_TRUE(same_bits(expected, found)) << describe(form, 5003);
    });
  }
}

#define LOCKSTEP_TEST(Update)                                       \
  TEST(SpanRates, KernelsOf##Update##TakeTheSpansOwnRateAndCount) { \
    expect_own_rate_and_count<amp::Update>();                       \
  }
LOCKSTEP_FOR_EACH_UPDATE(LOCKSTEP_TEST)

TEST(SpanRates, KernelsOfLambTakeEachSpansOwnRateAndCount) {
  at::manual_seed(5);
  const amp::LambUpdate update{{1.0, 0.9, 0.999, 1e-6, 0.1}};
  for (const SpanForm& form : span_forms()) {
    const amp::FlatRule<amp::LambUpdate> rule(update, form.moments);
    std::vector<amp::FlatSpan> before;
    std::vector<amp::FlatSpan> expected;
    for (const int64_t missed : {0, 4, 6, 5, 2}) {
      before.push_back(span_in_form(form, 900 * (missed + 1), rule));
      expected.push_back(updated(rule, with_own(before.back(), missed), 7));
    }
    for_each_device([&] {
      amp::LambBatch batch;
      std::vector<amp::FlatSpan> found;
      for (size_t i = 0; i < before.size(); ++i) {
        found.push_back(guarded_copy(before[i]));
        found.back().learning_rate = at::full({1}, kOwnRate, at::kDouble);
        found.back().missed = at::full({1}, std::vector<int64_t>{0, 4, 6, 5, 2}[i], at::kLong);
        ASSERT_TRUE(batch.add(amp::arrays_of<float>(found.back())));
      }
      const GuardedMemory scratch(static_cast<size_t>(amp::LambScratch::bytes(batch)));
      const amp::StepState state = at_update(7);
      expect_well(launch_lamb(update, batch, amp::LambScratch::in(scratch.data(), batch), &state));
      for (size_t i = 0; i < found.size(); ++i) {
        EXPECT_TRUE(same_bits(expected[i], found[i])) << describe(form, i);
      }
    });
  }
}

TEST(SpanRates, NumbersOfAnotherKindAreRefused) {
  amp::FlatSpan span = fp32_span(64, 2);
  span.learning_rate = at::ones({1});
  const amp::StepState state;
  expect_error([&] { AdamW().rule(0)->apply(span, &state); }, "learning_rate must be one Double");
  span.learning_rate = at::Tensor();
  span.missed = at::ones({2}, at::kLong);
  expect_error([&] { AdamW().rule(0)->apply(span, &state); }, "missed must be one Long");
}

}  // namespace
}  // namespace lockstep
