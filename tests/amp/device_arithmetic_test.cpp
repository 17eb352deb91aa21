// The arithmetic of the kernels for device memory, run here on the host pack by pack: the same
// source as on a device, and the same bits as the kernels for host memory.
#include "device_spans.h"

#include <lockstep/amp/average.h>
#include <lockstep/amp/cpu_update.h>
#include <lockstep/amp/cuda/lamb_pack.h>
#include <lockstep/amp/cuda/span_arrays.h>
#include <lockstep/amp/flat_kernels.h>
#include <lockstep/amp/lamb_rule.h>
#include <lockstep/amp/measure.h>
#include <lockstep/collectives/cast_kernels.h>

namespace lockstep {
namespace {

using namespace testing;

/// Packs in an order that no loop has, as threads come.
template <typename Work>
void for_each_pack(int64_t size, const Work& work) {
  const int64_t packs = amp::packs_of(size);
  for (int64_t first : {1, 0}) {
    for (int64_t pack = first; pack < packs; pack += 2) {
      work(pack);
    }
  }
}

template <typename Update>
void update_by_packs(const Update& update, const amp::FlatSpan& span, const amp::StepState& state) {
  const amp::UpdateArrays arrays = amp::arrays_of(span);
  const auto prepared = update.prepare(state);
  for_each_pack(arrays.size,
                [&](int64_t pack) { amp::update_pack<Update>(prepared, arrays, pack); });
}

amp::StepState third_update() {
  amp::StepState state;
  state.gradient_factor = 0.37F;
  state.gradient_limit = 0.5F;
  state.learning_rate_factor = 0.9F;
  state.update = 3;
  return state;
}

/// As the threads of one scale do: all compute before one of them writes.
template <typename Update>
void update_narrowly_by_packs(const Update& update, const amp::FlatSpan& span,
                              const amp::StepState& state) {
  const amp::UpdateArrays arrays = amp::arrays_of(span);
  const auto prepared = update.prepare(state);
  const amp::EightBitTables tables = amp::EightBitTables::of();
  const auto random = amp::SpanRandom::of(arrays.stream, state.update);
  const amp::NarrowUpdate<Update> narrow{arrays, tables};
  for (int64_t group = amp::scale_groups_of(arrays.size) - 1; group >= 0; --group) {
    std::vector<amp::PackValues> packs(amp::kScalePacks);
    amp::LargestBits largest;
    for (int64_t k = 0; k < amp::kScalePacks; ++k) {
      amp::PackValues& values = packs[static_cast<size_t>(k)];
      narrow.load(group * amp::kScalePacks + k, values);
      amp::compute_pack<Update>(prepared, values);
      const amp::LargestBits bits = narrow.largest(values);
      for (int m = 0; m < 2; ++m) {
        largest.of[m] = std::max(largest.of[m], bits.of[m]);
      }
    }
    for (int64_t k = amp::kScalePacks - 1; k >= 0; --k) {
      narrow.store(group * amp::kScalePacks + k, packs[static_cast<size_t>(k)], random, largest);
    }
  }
}

template <typename Update>
void expect_the_bits_of_the_host_in_every_form(const Update& update) {
  at::manual_seed(2);
  for (const SpanForm& form : span_forms()) {
    const auto rule = amp::flat_rule(update, form.moments);
    for (const int64_t size : pack_sizes()) {
      const amp::FlatSpan host = span_in_form(form, size, *rule);
      const amp::FlatSpan packs = deep_copy(host);
      ASSERT_TRUE(amp::arrays_of(host).narrow() || form.master);
      amp::update_on_cpu(update, host, third_update());
      update_narrowly_by_packs(update, packs, third_update());
      EXPECT_TRUE(same_bits(host, packs)) << describe(form, size);
    }
  }
}

template <typename Update>
void expect_the_bits_of_the_host(const Update& update) {
  at::manual_seed(1);
  for (const SpanKind& kind : span_kinds()) {
    for (const int64_t size : pack_sizes()) {
      const amp::FlatSpan host = random_span(kind, size, Update::kMoments);
      const amp::FlatSpan packs = deep_copy(host);
      amp::update_on_cpu(update, host, third_update());
      update_by_packs(update, packs, third_update());
      EXPECT_TRUE(same_bits(host, packs))
          << kind.wire << " gradients, " << kind.updated << "[" << size << "], copy " << kind.copy;
    }
  }
}

const amp::AdamHyperparameters kAdam{1e-2, 0.9, 0.99, 1e-8, 0.1};

TEST(DeviceArithmetic, AdamWHasTheBitsOfTheHost) {
  expect_the_bits_of_the_host(amp::AdamWUpdate{kAdam});
}
TEST(DeviceArithmetic, AdamHasTheBitsOfTheHost) {
  expect_the_bits_of_the_host(amp::AdamUpdate{kAdam});
}
TEST(DeviceArithmetic, LionHasTheBitsOfTheHost) {
  expect_the_bits_of_the_host(amp::LionUpdate{1e-3, 0.9, 0.99, 0.1});
}
TEST(DeviceArithmetic, SgdHasTheBitsOfTheHost) {
  expect_the_bits_of_the_host(amp::SgdUpdate{1e-2, 0.1});
}
TEST(DeviceArithmetic, MomentumHasTheBitsOfTheHost) {
  expect_the_bits_of_the_host(amp::MomentumUpdate{1e-2, 0.9, 0.1, 0.1, true});
}

TEST(DeviceArithmetic, NarrowFormsHaveTheBitsOfTheHost) {
  expect_the_bits_of_the_host_in_every_form(amp::AdamWUpdate{kAdam});
  expect_the_bits_of_the_host_in_every_form(amp::AdamUpdate{kAdam});
  expect_the_bits_of_the_host_in_every_form(amp::LionUpdate{1e-3, 0.9, 0.99, 0.1});
  expect_the_bits_of_the_host_in_every_form(amp::SgdUpdate{1e-2, 0.1});
  expect_the_bits_of_the_host_in_every_form(amp::MomentumUpdate{1e-2, 0.9, 0.1, 0.1, true});
}

/// The chunks of all spans, last first, as blocks come.
void lamb_by_packs(const amp::LambUpdate& update, const std::vector<amp::FlatSpan>& spans,
                   const amp::StepState& state) {
  amp::LambBatch batch;
  for (const amp::FlatSpan& span : spans) {
    ASSERT_TRUE(batch.add(amp::arrays_of(span)));
  }
  const amp::EightBitTables tables = amp::EightBitTables::of();
  const auto direction = update.prepare(state);
  std::vector<amp::LambSums> sums(static_cast<size_t>(batch.count));
  constexpr int64_t kPacks = amp::kLambChunk / amp::kPack;
  const auto for_each_group = [&](const auto& work) {
    for (int64_t chunk = batch.chunks() - 1; chunk >= 0; --chunk) {
      const int span = batch.span_of(chunk);
      const int64_t first = (chunk - batch.first_chunk[span]) * kPacks;
      for (int64_t pack = first; pack < first + kPacks; pack += amp::kScalePacks) {
        work(span, amp::NarrowUpdate<amp::LambUpdate>{batch.spans[span], tables}, pack);
      }
    }
  };
  for_each_group([&](int span, const auto& narrow, int64_t first) {
    amp::PackValues packs[amp::kScalePacks];
    amp::LargestBits largest;
    for (int64_t k = 0; k < amp::kScalePacks; ++k) {
      narrow.load(first + k, packs[k]);
      amp::lamb_direction_pack(direction, packs[k], sums[static_cast<size_t>(span)]);
      const amp::LargestBits bits = narrow.largest(packs[k]);
      for (int m = 0; m < 2; ++m) {
        largest.of[m] = std::max(largest.of[m], bits.of[m]);
      }
    }
    for (int64_t k = 0; k < amp::kScalePacks; ++k) {
      narrow.store_moments(first + k, packs[k],
                           amp::SpanRandom::of(narrow.arrays.stream, state.update), largest);
    }
  });
  for_each_group([&](int span, const auto& narrow, int64_t first) {
    const amp::LambSums& all = sums[static_cast<size_t>(span)];
    const auto move = update.prepare_move(state, all.weights, all.directions);
    for (int64_t pack = first; pack < first + amp::kScalePacks; ++pack) {
      amp::PackValues values;
      narrow.load(pack, values);
      amp::compute_pack<amp::LambUpdate>(move, values);
      amp::store_weight(narrow.arrays, pack, values.weight,
                        amp::SpanRandom::of(narrow.arrays.stream, state.update).weight);
    }
  });
}

TEST(DeviceArithmetic, LambHasTheBitsOfTheHostForManyParametersAtOnce) {
  at::manual_seed(3);
  const amp::LambUpdate update{kAdam};
  for (const SpanForm& form : span_forms()) {
    const amp::LambRule rule(update, form.moments);
    std::vector<amp::FlatSpan> host;
    std::vector<amp::FlatSpan> packs;
    for (const int64_t size : {7, 8192, 64, 5003, 20001}) {
      host.push_back(span_in_form(form, size, rule));
      packs.push_back(deep_copy(host.back()));
    }
    const amp::StepState state = third_update();
    rule.apply_all(host, &state);
    lamb_by_packs(update, packs, state);
    for (size_t i = 0; i < host.size(); ++i) {
      EXPECT_TRUE(same_bits(host[i], packs[i])) << describe(form, host[i].gradient.numel());
    }
  }
}

TEST(DeviceArithmetic, ABatchOfParametersFitsIntoTheArgumentsOfAKernel) {
  EXPECT_LE(sizeof(amp::LambUpdate) + sizeof(amp::LambBatch) + sizeof(amp::LambScratch) + 8, 4096U);
  amp::LambBatch batch;
  amp::UpdateArrays arrays;
  arrays.size = amp::kLambChunk + 1;
  for (int k = 0; k < amp::LambBatch::kSpans; ++k) {
    EXPECT_TRUE(batch.add(arrays));
    EXPECT_EQ(batch.span_of(2 * k), k);
    EXPECT_EQ(batch.span_of(2 * k + 1), k);
  }
  EXPECT_FALSE(batch.add(arrays));
  EXPECT_EQ(batch.chunks(), 2 * amp::LambBatch::kSpans);
}

TEST(DeviceArithmetic, AveragesAloneMoveAsOnTheHost) {
  for (const SpanForm& form : span_forms()) {
    if (!form.average) {
      continue;
    }
    const auto rule = amp::flat_rule(amp::AdamWUpdate{kAdam}, form.moments);
    const amp::FlatSpan host = span_in_form(form, 5003, *rule);
    const amp::FlatSpan packs = deep_copy(host);
    const amp::StepState state;
    amp::move_average(host, &state);
    const amp::UpdateArrays arrays = amp::arrays_of(packs);
    for_each_pack(arrays.size, [&](int64_t pack) {
      float weight[amp::kPack];
      amp::load_weight(arrays, pack, weight);
      amp::move_average_pack(arrays, pack, weight);
    });
    EXPECT_TRUE(same_bits(host, packs)) << describe(form, 5003);
  }
}

TEST(DeviceArithmetic, TablesOfCodesDoNotDependOnTheNumberOfThreads) {
  const amp::EightBitTables one = amp::EightBitTables::of();
  amp::EightBitTables many;
  for (int thread = 255; thread >= 0; --thread) {
    many.fill(thread, 256);
  }
  EXPECT_EQ(std::memcmp(&one, &many, sizeof one), 0);
}

TEST(DeviceArithmetic, SpansThatBeginBetweenAccessesAreRefusedByName) {
  amp::FlatSpan span = fp32_span(64, 1);
  amp::check_cuda_span(span);
  span.moments[0] = at::zeros({65}).narrow(0, 1, 64);
  expect_error([&] { amp::check_cuda_span(span); }, "moment begins at");
}

TEST(DeviceArithmetic, CastsHaveTheBitsOfTheHost) {
  const at::Tensor all = at::cat({delicate_values(), at::randn({500})});
  for (const at::ScalarType from : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const at::ScalarType to : {at::kFloat, at::kHalf, at::kBFloat16}) {
      for (const float factor : {1.0F, 0.25F, 3.7F}) {
        const at::Tensor source = all.to(from);
        const int64_t size = source.numel();
        const at::Tensor host = at::empty({size}, to);
        const at::Tensor packs = at::empty({size}, to);
        kernels::cast_scaled(host.mutable_data_ptr(), to, source.const_data_ptr(), from, size,
                             factor);
        for_each_pack(size, [&](int64_t pack) {
          amp::cast_pack(amp::elements_of(packs), amp::elements_of(source), size, factor, pack);
        });
        EXPECT_TRUE(at::equal(host.isnan(), packs.isnan())) << from << " to " << to;
        EXPECT_TRUE(
            same_bits(host.masked_fill(host.isnan(), 0), packs.masked_fill(packs.isnan(), 0)))
            << from << " to " << to << " times " << factor;
      }
    }
  }
}

void expect_equal_feedback(const at::Tensor& gradient, at::ScalarType wire, int32_t kept) {
  const int64_t size = 1001;
  const amp::FeedbackState state{kept, /*scale=*/2.0F, /*factor=*/1.7F};
  const at::Tensor host = at::ones({size}, wire);
  const at::Tensor packs = host.clone();
  const at::Tensor host_residuals = at::randn({2, 1008});
  const at::Tensor packs_residuals = host_residuals.clone();
  amp::cast_with_feedback(host, gradient, 0.37, host_residuals.narrow(1, 0, size), &state);
  auto* const residuals = packs_residuals.mutable_data_ptr<float>();
  const auto from = gradient.defined() ? amp::elements_of(gradient) : amp::Elements{};
  for_each_pack(size, [&](int64_t pack) {
    amp::feedback_pack(amp::elements_of(packs), from, {{residuals, residuals + 1008}}, size, 0.37F,
                       state, pack);
  });
  EXPECT_TRUE(same_bits(host, packs));
  EXPECT_TRUE(same_bits(host_residuals, packs_residuals));
}

TEST(DeviceArithmetic, ErrorFeedbackHasTheBitsOfTheHost) {
  for (const at::ScalarType wire : {at::kHalf, at::kBFloat16}) {
    for (const int32_t kept : {0, 1}) {
      expect_equal_feedback({}, wire, kept);
      for (const at::ScalarType from : {at::kFloat, at::kHalf, at::kBFloat16}) {
        SCOPED_TRACE(c10::str(from, " to ", wire));
        expect_equal_feedback((at::randn({1001}) * 100).to(from), wire, kept);
      }
    }
  }
}

TEST(DeviceArithmetic, AccumulationHasTheBitsOfTheHost) {
  for (const at::ScalarType from : {at::kFloat, at::kHalf, at::kBFloat16}) {
    const at::Tensor terms = at::randn({1001}).to(from);
    const at::Tensor host = at::randn({1001});
    const at::Tensor packs = host.clone();
    kernels::accumulate(host.mutable_data_ptr<float>(), terms.const_data_ptr(), from, 1001);
    for_each_pack(1001, [&](int64_t pack) {
      amp::accumulate_pack(amp::elements_of(packs), amp::elements_of(terms), 1001, pack);
    });
    EXPECT_TRUE(same_bits(host, packs)) << from;
  }
}

amp::MeasureTotals measured(const at::Tensor& flat) {
  amp::MeasureTotals totals{0.0, 0.0};
  double sum = 0.0;
  for_each_pack(flat.numel(), [&](int64_t pack) {
    sum += amp::squares_of_pack(amp::elements_of(flat), flat.numel(), pack);
  });
  amp::add_bucket(totals, sum);
  return totals;
}

TEST(DeviceArithmetic, MeasuresWhatTheHostMeasures) {
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const int64_t size : pack_sizes()) {
      const at::Tensor flat = at::randn({size}).to(dtype);
      const amp::Measure host = amp::measure(flat);
      const amp::MeasureTotals totals = measured(flat);
      EXPECT_EQ(totals.not_finite, 0.0);
      EXPECT_NEAR(totals.sum_squares, host.sum_squares, 1e-12 * host.sum_squares);
    }
  }
}

TEST(DeviceArithmetic, FindsOneNonFiniteElementAnywhere) {
  for (const float bad : {INFINITY, -INFINITY, NAN}) {
    for (const int64_t place : {0, 7, 8, 41}) {
      at::Tensor flat = at::ones({42}, at::kHalf);
      flat[place] = bad;
      EXPECT_EQ(measured(flat).not_finite, 1.0) << bad << " at " << place;
    }
  }
  EXPECT_EQ(measured(at::full({42}, 3e38F)).not_finite, 0.0) << "squares beyond fp32 are finite";
}

TEST(DeviceArithmetic, ReadsAndWritesNothingBeyondTheEnd) {
  const at::Tensor memory = at::full({24}, 5.0F);
  const amp::Elements array{memory.mutable_data_ptr(), amp::Element::fp32};
  amp::cast_pack(array, array, /*size=*/11, /*factor=*/2.0F, /*pack=*/0);
  amp::cast_pack(array, array, /*size=*/11, /*factor=*/2.0F, /*pack=*/1);
  EXPECT_TRUE(at::equal(memory.narrow(0, 0, 11), at::full({11}, 10.0F)));
  EXPECT_TRUE(at::equal(memory.narrow(0, 11, 13), at::full({13}, 5.0F)));
}

TEST(DeviceArithmetic, RefusesOtherDtypesByName) {
  EXPECT_THROW(amp::elements_of(at::zeros({2}, at::kDouble)), Error);
}

}  // namespace
}  // namespace lockstep
