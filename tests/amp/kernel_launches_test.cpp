// Every launch of amp/cuda/launch.h and row_launch.h in its smallest and a larger shape, for the
// sanitizers, and so without LibTorch: what the kernels compute is tested elsewhere. The program is
// built once with ThreadSanitizer, which reports accesses of two device threads that no barrier
// orders, and once with AddressSanitizer and UndefinedBehaviorSanitizer.
#include "emulated_launches.h"
#include "guarded_memory.h"
#include "update_samples.h"

#include <lockstep/amp/cuda/launch.h>
#include <lockstep/amp/cuda/row_launch.h>

#include <memory>
#include <random>
#include <vector>

namespace lockstep {

namespace {

using namespace amp;
using testing::expect_well;

/// Random floats, or their nearest bf16.
template <typename T>
class Array {
 public:
  explicit Array(int64_t size) : memory_(static_cast<size_t>(size) * sizeof(T)) {
    std::mt19937 bits(7);
    for (int64_t i = 0; i < size; ++i) {
      const float value = std::uniform_real_distribution<float>(0.1F, 2.0F)(bits);
      if constexpr (std::is_same_v<T, uint16_t>) {
        data()[i] = float_as_brain(value);
      } else {
        data()[i] = static_cast<T>(value);
      }
    }
  }
  T* data() const { return static_cast<T*>(memory_.data()); }
  Elements elements() const {
    return {memory_.data(), sizeof(T) == sizeof(float) ? Element::fp32 : Element::bf16};
  }

 private:
  testing::GuardedMemory memory_;
};

StepState third_update() {
  StepState state;
  state.update = 3;
  return state;
}

/// A span's arrays, in one of three forms.
struct Span {
  explicit Span(int64_t size)
      : floats{Array<float>(size), Array<float>(size), Array<float>(size), Array<float>(size)},
        brains{Array<uint16_t>(size), Array<uint16_t>(size), Array<uint16_t>(size),
               Array<uint16_t>(size)},
        rests(size) {
    plain.gradient = brains[0].elements();
    plain.size = size;
    plain.updated = floats[0].elements();
    plain.copy = brains[1].elements();
    plain.moments[0] = floats[1].elements();
    plain.moments[1] = floats[2].elements();
    split = plain;
    split.updated = brains[1].elements();
    split.copy = {};
    split.remainder = rests.data();
    split.average = floats[3].data();
    split.average_rest = 0.1F;
    split.moments[0] = brains[2].elements();
    split.moments[1] = brains[3].elements();
    random = split;
    random.remainder = nullptr;
    random.rounds_randomly = true;
    random.moments[1] = floats[2].elements();
  }

  Array<float> floats[4];
  Array<uint16_t> brains[4];
  Array<int16_t> rests;
  UpdateArrays plain;
  UpdateArrays split;
  UpdateArrays random;
};

/// One processor, so that threads take several packs.
class KernelLaunches : public ::testing::Test {
 protected:
  void SetUp() override { emulated_cuda::device() = {1, 80, emulated_cuda::Order::shuffled}; }
};

constexpr int64_t kSizes[] = {0, 1, 65, 17001};

template <typename Update>
void launch_in_every_form(const Update& update) {
  const StepState state = third_update();
  for (const int64_t size : kSizes) {
    const Span span(size);
    for (const UpdateArrays& arrays : {span.plain, span.split, span.random}) {
      expect_well(testing::launch_update(update, arrays, &state));
    }
  }
}

#define LOCKSTEP_TEST(Update)                        \
  TEST_F(KernelLaunches, Update) {                   \
    launch_in_every_form(testing::sample<Update>()); \
  }
LOCKSTEP_FOR_EACH_UPDATE(LOCKSTEP_TEST)

TEST_F(KernelLaunches, Lamb) {
  const StepState state = third_update();
  for (UpdateArrays Span::*form : {&Span::plain, &Span::split, &Span::random}) {
    std::vector<std::unique_ptr<Span>> spans;
    LambBatch batch;
    for (const int64_t size : {7, 8193, 640}) {
      spans.push_back(std::make_unique<Span>(size));
      ASSERT_TRUE(batch.add(*spans.back().*form));
    }
    const testing::GuardedMemory scratch(static_cast<size_t>(LambScratch::bytes(batch)));
    expect_well(testing::launch_lamb(LambUpdate{testing::kAdamSample}, batch,
                                     LambScratch::in(scratch.data(), batch), &state));
  }
}

TEST_F(KernelLaunches, Average) {
  const StepState state = third_update();
  for (const int64_t size : kSizes) {
    expect_well(cuda::launch_average(Span(size).split, &state, nullptr));
  }
}

TEST_F(KernelLaunches, Gradients) {
  for (const int64_t size : kSizes) {
    const Array<float> floats(size);
    const Array<float> others(size);
    const Array<uint16_t> brains(size);
    expect_well(
        cuda::launch_cast(brains.elements(), floats.elements(), size, /*factor=*/0.5F, nullptr));
    CastBatch batch;
    batch.add(brains.elements(), floats.elements(), size);
    batch.add(others.elements(), floats.elements(), size);
    expect_well(cuda::launch_casts(batch, /*factor=*/0.5F, nullptr));
    expect_well(cuda::launch_accumulate(floats.elements(), brains.elements(), size, nullptr));
  }
}

TEST_F(KernelLaunches, DecisionFromWhatIsMeasured) {
  const Array<float> floats(4097);
  const MeasuredParts parts{2048, 3};
  const int sums = cuda::measuring_blocks(parts) * parts.count;
  const Array<double> partial(sums);
  Decision decision;
  ScalerState scaler;
  DecisionRule rule{};
  rule.clip_norm = 0.5;
  const float overflow = 0.0F;
  expect_well(cuda::launch_squares(floats.elements(), 4097, parts, /*first=*/0, /*count=*/3,
                                   partial.data(), nullptr));
  expect_well(cuda::launch_totals(partial.data(), sums, &decision.totals, nullptr));
  expect_well(cuda::launch_decide(&decision, &scaler, rule, nullptr));
  expect_well(cuda::launch_conclude(&decision, &scaler, rule, nullptr));
  expect_well(cuda::launch_advance(&scaler, rule.scaler, &overflow, nullptr));
  EXPECT_EQ(decision.updates, 1);
}

struct RowCase {
  int64_t rows;
  int64_t size;
};
constexpr RowCase kRowCases[] = {{0, 7}, {1, 1}, {3, 7}, {20, 300}};

TEST_F(KernelLaunches, Norm) {
  for (const auto [rows, size] : kRowCases) {
    const Array<float> x(rows * size);
    const Array<float> y(rows * size);
    const Array<uint16_t> dy(rows * size);
    const Array<float> weight(size);
    const Array<float> norms(2 * rows);
    const Array<float> parts(2 * row_parts(rows) * size);
    const Array<float> sums(2 * size);
    const NormWork work{{x.elements(), rows, size},
                        weight.data(),
                        weight.data(),
                        reinterpret_cast<RowNorm*>(norms.data()),
                        /*centred=*/true,
                        /*eps=*/1e-5};
    const Rows slopes{dy.elements(), rows, size};
    expect_well(cuda::launch_norm(work, {y.elements(), rows, size}, nullptr));
    expect_well(cuda::launch_norm_backward(work, {y.elements(), rows, size}, slopes, parts.data(),
                                           sums.data(), nullptr));
  }
}

TEST_F(KernelLaunches, BiasGelu) {
  for (const auto [rows, size] : kRowCases) {
    const Array<float> x(rows * size);
    const Array<float> y(rows * size);
    const Array<uint16_t> dy(rows * size);
    const Array<float> bias(size);
    const Array<float> parts(row_parts(rows) * size);
    const Array<float> sum(size);
    const BiasGeluWork work{{x.elements(), rows, size}, bias.data()};
    const Rows result{y.elements(), rows, size};
    expect_well(cuda::launch_bias_gelu(work, result, nullptr));
    expect_well(cuda::launch_bias_gelu_backward(work, result, {dy.elements(), rows, size},
                                                parts.data(), sum.data(), nullptr));
  }
}

TEST_F(KernelLaunches, CrossEntropy) {
  for (const auto [rows, size] : kRowCases) {
    const Array<float> logits(rows * size);
    const Array<uint16_t> gradient(rows * size);
    const Array<int64_t> targets(rows);  // 0 or 1, which of one class is none
    const Array<float> log_sums(rows);
    const Array<double> losses(rows);
    const CrossEntropyWork work{{logits.elements(), rows, size},
                                targets.data(),
                                log_sums.data(),
                                /*smoothing=*/0.1,
                                /*ignore_index=*/0};
    float loss = 0.0F;
    double counted = 0.0;
    const float slope = 2.0F;
    expect_well(cuda::launch_cross_entropy(work, losses.data(), &loss, &counted, nullptr));
    expect_well(cuda::launch_cross_entropy_backward(work, {gradient.elements(), rows, size}, &slope,
                                                    &counted, nullptr));
  }
}

}  // namespace
}  // namespace lockstep
