// The kernels for device memory, launched as on a device but on the host (emulated_cuda/device.h):
// the same bits as the kernels for host memory, whatever the number of processors and the order of
// blocks and threads. Arrays end where nothing may be touched.
#include "device_spans.h"
#include "emulated_launches.h"
#include "guarded_tensors.h"
#include "test_names.h"
#include "update_samples.h"

#include <lockstep/amp/cuda/launch.h>
#include <lockstep/amp/impl/cast_kernels.h>
#include <lockstep/amp/impl/flat_kernels.h>
#include <lockstep/amp/impl/flat_span.h>
#include <lockstep/amp/loss_scaler.h>
#include <lockstep/amp/update/cpu_update.h>
#include <lockstep/amp/update/measure.h>
#include <lockstep/collectives/exceptions.h>

namespace lockstep {
namespace {

/// Sizes below, at and above one pack, one block, and one round of one processor.
std::vector<int64_t> sizes() {
  return {0, 1, 3, 4, 5, 7, 8, 9, 64, 65, 255, 2048, 5003, 20001};
}

amp::StepState third_update() {
  amp::StepState state;
  state.gradient_factor = 0.37F;
  state.gradient_limit = 0.5F;
  state.learning_rate_factor = 0.9F;
  state.update = 3;
  return state;
}

amp::StepState skipped_update() {
  amp::StepState state = third_update();
  state.skip = true;
  return state;
}

template <typename Update>
void update_as_on_a_device(const Update& update, const amp::FlatSpan& span,
                           const amp::StepState& state) {
  expect_well(launch_update(update, amp::arrays_of<float>(span), &state));
}

template <typename Update>
void expect_the_bits_of_the_host_in_every_form(const Update& update) {
  at::manual_seed(2);
  for (const SpanForm& form : span_forms()) {
    const auto rule = amp::flat_rule(update, form.moments);
    for (const int64_t size : sizes()) {
      const amp::FlatSpan before = span_in_form(form, size, *rule);
      const amp::FlatSpan host = deep_copy(before);
      ASSERT_TRUE(amp::arrays_of<float>(host).narrow() || form.master || size == 0);
      amp::update_on_cpu(update, host, third_update());
      for_each_device([&] {
        const amp::FlatSpan found = guarded_copy(before);
        update_as_on_a_device(update, found, skipped_update());
        EXPECT_TRUE(same_bits(before, found)) << "skipped, " << describe(form, size);
        update_as_on_a_device(update, found, third_update());
        EXPECT_TRUE(same_bits(host, found)) << describe(form, size);
      });
    }
  }
}

template <typename Update>
void expect_the_bits_of_the_host(const Update& update) {
  at::manual_seed(1);
  for (const SpanKind& kind : span_kinds()) {
    for (const int64_t size : sizes()) {
      const amp::FlatSpan before = random_span(kind, size, Update::kMoments);
      const amp::FlatSpan host = deep_copy(before);
      amp::update_on_cpu(update, host, third_update());
      for_each_device([&] {
        const amp::FlatSpan found = guarded_copy(before);
        update_as_on_a_device(update, found, skipped_update());
        EXPECT_TRUE(same_bits(before, found)) << "skipped, size " << size;
        update_as_on_a_device(update, found, third_update());
        EXPECT_TRUE(same_bits(host, found)) << kind.wire << " gradients, " << kind.updated << "["
                                            << size << "], copy " << kind.copy;
      });
    }
  }
}

#define LOCKSTEP_TEST(Update)                                         \
  TEST(EmulatedKernels, Update##HasTheBitsOfTheHost) {                \
    expect_the_bits_of_the_host(sample<amp::Update>());               \
  }                                                                   \
  TEST(EmulatedKernels, Update##HasTheBitsOfTheHostInEveryForm) {     \
    expect_the_bits_of_the_host_in_every_form(sample<amp::Update>()); \
  }
LOCKSTEP_FOR_EACH_UPDATE(LOCKSTEP_TEST)

void lamb_as_on_a_device(const amp::LambUpdate& update, const std::vector<amp::FlatSpan>& spans,
                         const amp::StepState& state) {
  amp::LambBatch batch;
  for (const amp::FlatSpan& span : spans) {
    ASSERT_TRUE(batch.add(amp::arrays_of<float>(span)));
  }
  const GuardedMemory scratch(static_cast<size_t>(amp::LambScratch::bytes(batch)));
  expect_well(launch_lamb(update, batch, amp::LambScratch::in(scratch.data(), batch), &state));
}

template <typename Copy>
std::vector<amp::FlatSpan> copies(const std::vector<amp::FlatSpan>& spans, const Copy& copy) {
  std::vector<amp::FlatSpan> result;
  for (const amp::FlatSpan& span : spans) {
    result.push_back(copy(span));
  }
  return result;
}

void expect_same(const std::vector<amp::FlatSpan>& expected,
                 const std::vector<amp::FlatSpan>& found, const SpanForm& form) {
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(same_bits(expected[i], found[i])) << describe(form, expected[i].gradient.numel());
  }
}

TEST(EmulatedKernels, LambHasTheBitsOfTheHostForManyParametersAtOnce) {
  at::manual_seed(3);
  const amp::LambUpdate update{kAdamSample};
  for (const SpanForm& form : span_forms()) {
    const amp::FlatRule<amp::LambUpdate> rule(update, form.moments);
    std::vector<amp::FlatSpan> before;
    for (const int64_t size :
         {7, 8192, 64, 1, 8193, 0, 5003, 20001, 4, 5, 65, 8, 640, 9, 16384, 3}) {
      before.push_back(span_in_form(form, size, rule));
    }
    const auto host = copies(before, deep_copy);
    const amp::StepState state = third_update();
    rule.apply_all(host, &state);
    for_each_device([&] {
      const auto found =
          copies(before, [](const amp::FlatSpan& span) { return guarded_copy(span); });
      lamb_as_on_a_device(update, found, skipped_update());
      expect_same(before, found, form);
      lamb_as_on_a_device(update, found, state);
      expect_same(host, found, form);
    });
  }
}

TEST(EmulatedKernels, LambWithoutElementsMovesNothing) {
  lamb_as_on_a_device(amp::LambUpdate{kAdamSample}, {}, third_update());
  lamb_as_on_a_device(amp::LambUpdate{kAdamSample}, {fp32_span(0, 2)}, third_update());
}

TEST(EmulatedKernels, AveragesAloneMoveAsOnTheHost) {
  for (const SpanForm& form : span_forms()) {
    if (!form.average) {
      continue;
    }
    const auto rule = amp::flat_rule(amp::AdamWUpdate{kAdamSample}, form.moments);
    for (const int64_t size : {0, 1, 5003, 20001}) {
      const amp::FlatSpan before = span_in_form(form, size, *rule);
      const amp::FlatSpan host = deep_copy(before);
      const amp::StepState state;
      amp::move_average(host, &state);
      for_each_device([&] {
        const amp::FlatSpan found = guarded_copy(before);
        const amp::StepState skipped = skipped_update();
        expect_well(amp::cuda::launch_average(amp::arrays_of<float>(found), &skipped, nullptr));
        EXPECT_TRUE(same_bits(before, found)) << "skipped, " << describe(form, size);
        expect_well(amp::cuda::launch_average(amp::arrays_of<float>(found), &state, nullptr));
        EXPECT_TRUE(same_bits(host, found)) << describe(form, size);
      });
    }
  }
}

TEST(EmulatedKernels, SpansThatBeginBetweenAccessesAreRefusedByName) {
  amp::FlatSpan span = fp32_span(64, 1);
  amp::check_cuda_span(span);
  span.moments[0] = at::zeros({65}).narrow(0, 1, 64);
  expect_error([&] { amp::check_cuda_span(span); }, "moment begins at");
}

/// Delicate values first.
at::Tensor values_to_cast(int64_t size) {
  const at::Tensor all = at::cat({delicate_values(), at::randn({20001})});
  return all.narrow(0, 0, size);
}

void expect_same_but_for_nan_bits(const at::Tensor& host, const at::Tensor& found) {
  EXPECT_TRUE(at::equal(host.isnan(), found.isnan()));
  EXPECT_TRUE(same_bits(host.masked_fill(host.isnan(), 0), found.masked_fill(found.isnan(), 0)));
}

TEST(EmulatedKernels, CastsHaveTheBitsOfTheHost) {
  for (const at::ScalarType from : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const at::ScalarType to : {at::kFloat, at::kHalf, at::kBFloat16}) {
      for (const int64_t size : sizes()) {
        const float factor = size % 2 == 0 ? 1.0F : 3.7F;
        const at::Tensor source = guarded_copy(values_to_cast(size).to(from));
        const at::Tensor host = at::empty({size}, to);
        kernels::cast_scaled(host.mutable_data_ptr(), to, source.const_data_ptr(), from, size,
                             factor);
        for_each_device([&] {
          SCOPED_TRACE(c10::str(from, " to ", to, " times ", factor, ", size ", size));
          const at::Tensor found = guarded({size}, to);
          expect_well(amp::cuda::launch_cast(amp::elements_of(found), amp::elements_of(source),
                                             size, factor, nullptr));
          expect_same_but_for_nan_bits(host, found);
        });
      }
    }
  }
}

TEST(EmulatedKernels, AccumulationHasTheBitsOfTheHost) {
  for (const at::ScalarType from : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const int64_t size : sizes()) {
      const at::Tensor terms = guarded_copy(at::randn({size}).to(from));
      const at::Tensor before = at::randn({size});
      const at::Tensor host = before.clone();
      kernels::accumulate(host.mutable_data_ptr<float>(), terms.const_data_ptr(), from, size);
      for_each_device([&] {
        const at::Tensor found = guarded_copy(before);
        expect_well(amp::cuda::launch_accumulate(amp::elements_of(found), amp::elements_of(terms),
                                                 size, nullptr));
        EXPECT_TRUE(same_bits(host, found)) << from << ", size " << size;
      });
    }
  }
}

amp::MeasureTotals measured(const at::Tensor& flat) {
  const amp::MeasuredParts all{amp::packs_of(flat.numel()) * amp::kPack};
  amp::MeasureTotals totals;
  const at::Tensor partial = guarded({amp::cuda::measuring_blocks(all)}, at::kDouble);
  auto* const sums = partial.mutable_data_ptr<double>();
  expect_well(amp::cuda::launch_squares(amp::elements_of(flat), flat.numel(), all, /*first=*/0,
                                        /*count=*/1, sums, nullptr));
  expect_well(amp::cuda::launch_totals(sums, static_cast<int>(partial.numel()), &totals, nullptr));
  return totals;
}

TEST(EmulatedKernels, MeasureWhatTheHostMeasuresTheSameOnEveryDevice) {
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const int64_t size = dtype == at::kFloat ? 1100003 : 5003;  // more than a round of all blocks
    const at::Tensor flat = guarded_copy(at::randn({size}).to(dtype));
    const double host = amp::measure(flat).sum_squares;
    std::vector<double> sums;
    for_each_device([&] {
      const amp::MeasureTotals totals = measured(flat);
      EXPECT_EQ(totals.not_finite, 0.0);
      EXPECT_NEAR(totals.sum_squares, host, 1e-12 * host);
      sums.push_back(totals.sum_squares);
    });
    EXPECT_THAT(sums, ::testing::Each(sums.front()));
  }
}

TEST(EmulatedKernels, MeasureFewElementsAndNone) {
  for (const int64_t size : {0, 1, 3, 4, 5}) {
    const at::Tensor flat = guarded_copy(at::randn({size}).to(at::kHalf));
    const double expected = flat.to(at::kDouble).square().sum().item<double>();
    EXPECT_NEAR(measured(flat).sum_squares, expected, 1e-12 * expected) << size;
  }
}

TEST(EmulatedKernels, FindOneNonFiniteElementAnywhere) {
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    for (const int64_t place : {0, 7, 8, 41}) {
      at::Tensor flat = at::ones({42}, at::kHalf);
      flat[place] = bad;
      EXPECT_EQ(measured(flat).not_finite, 1.0) << bad << " at " << place;
    }
  }
  EXPECT_EQ(measured(at::full({42}, 3e38F)).not_finite, 0.0) << "squares beyond fp32 are finite";
}

amp::DecisionRule decision_rule() {
  amp::DecisionRule rule{};
  rule.scaler = amp::scaler_rule(amp::LossScalerOptions().growth_interval(2));
  rule.clip_norm = 0.5;
  rule.clip_value = 0.25F;
  return rule;
}

TEST(EmulatedKernels, DecideConcludeAndMoveTheScaleAsTheHostDoes) {
  const amp::DecisionRule rule = decision_rule();
  amp::Decision host;
  amp::Decision found;
  amp::ScalerState host_scaler;
  amp::ScalerState found_scaler;
  amp::ScalerState advanced;
  for (const float overflow : {0.0F, 1.0F, 0.0F, 0.0F, 1.0F}) {
    host.totals = found.totals = {3.0, overflow};
    amp::decide(host, host_scaler, rule);
    amp::conclude(host, host_scaler, rule);
    expect_well(amp::cuda::launch_decide(&found, &found_scaler, rule, nullptr));
    expect_well(amp::cuda::launch_conclude(&found, &found_scaler, rule, nullptr));
    expect_well(amp::cuda::launch_advance(&advanced, rule.scaler, &overflow, nullptr));
    EXPECT_EQ(found.skipped, overflow != 0.0F);
    EXPECT_EQ(found.step.gradient_factor, host.step.gradient_factor);
    EXPECT_EQ(found.updates, host.updates);
    EXPECT_EQ(found.scaler.scale, host.scaler.scale);
    EXPECT_EQ(advanced.scale, host.scaler.scale);
    EXPECT_EQ(advanced.iteration, host.scaler.iteration);
  }
}

TEST(EmulatedKernels, KnowTheCapabilityOfADeviceAndLeaveNoErrorWhereThereIsNone) {
  emulated_cuda::device().capability = 75;
  EXPECT_EQ(amp::cuda::capability(0), 75);
  EXPECT_EQ(amp::cuda::capability(1), 0) << "there is no such device";
  amp::ScalerState scaler;
  const float overflow = 0.0F;
  expect_well(amp::cuda::launch_advance(&scaler, decision_rule().scaler, &overflow, nullptr));
}

TEST(EmulatedKernels, RefusesOtherDtypesByName) {
  EXPECT_THROW(amp::elements_of(at::zeros({2}, at::kDouble)), Error);
}

}  // namespace
}  // namespace lockstep
