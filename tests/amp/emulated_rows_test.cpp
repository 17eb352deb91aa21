// The kernels of the fused layers for device memory, launched as on a device but on the host
// (emulated_cuda/device.h), against those for host memory: elements have their bits where no sum is
// in them, and the same bits on every device.
#include "emulated_launches.h"
#include "guarded_tensors.h"
#include "test_names.h"

#include <lockstep/amp/cuda/row_launch.h>
#include <lockstep/amp/impl/flat_span.h>
#include <lockstep/amp/layers/layer_passes.h>

#include <algorithm>

namespace lockstep {
namespace {

using amp::Rows;

Rows rows_of(const at::Tensor& tensor) {
  return {amp::elements_of(tensor), tensor.size(0), tensor.size(1)};
}

const float* values_of(const at::Tensor& parameter) {
  return parameter.defined() ? parameter.const_data_ptr<float>() : nullptr;
}

/// Sums have another order here and there: a last bit differs, of the dtype once it is rounded.
void expect_close(const at::Tensor& found, const at::Tensor& expected, const std::string& what) {
  if (expected.numel() == 0) {
    return;
  }
  const double bound = expected.scalar_type() == at::kFloat  ? 3e-6
                       : expected.scalar_type() == at::kHalf ? 1e-3
                                                             : 8e-3;
  const auto wide = expected.to(at::kDouble);
  const double scale = wide.abs().max().item<double>() + 1e-30;
  EXPECT_LT((found.to(at::kDouble) - wide).abs().max().item<double>() / scale, bound) << what;
}

struct Case {
  at::ScalarType dtype;
  int64_t size;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
    for (const int64_t size : {1, 7, 32, 127, 128, 130, 1000, 2056}) {
      all.push_back({dtype, size});
    }
  }
  return all;
}

/// The last: more than there are parts, and than one processor has blocks.
constexpr int64_t kRowCounts[] = {0, 1, 3, 70};

at::Tensor guarded_values(at::IntArrayRef sizes, at::ScalarType dtype, double spread = 1.0) {
  return guarded_copy((at::randn(sizes) * spread + 0.3).to(dtype));
}

/// The same values one element after a multiple of 16 bytes, and of the guard at the end.
at::Tensor shifted(const at::Tensor& values) {
  const at::Tensor room = at::empty({values.numel() + 1}, values.options());
  return room.narrow(0, 1, values.numel()).view(values.sizes()).copy_(values);
}

/// The bits of the first device, then of all others.
class SameOnEveryDevice {
 public:
  void expect(std::vector<at::Tensor> found) {
    if (first_.empty()) {
      first_ = std::move(found);
      return;
    }
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_TRUE(same_bits(first_[i], found[i])) << "result " << i;
    }
  }

 private:
  std::vector<at::Tensor> first_;
};

struct NormKind {
  bool centred;
  bool has_weight;
  bool has_bias;
};

void check_norm(const Case& at_case, int64_t rows, const NormKind& kind) {
  const int64_t size = at_case.size;
  const std::string what = c10::str(at_case.dtype, "[", rows, ", ", size, "] centred ",
                                    kind.centred, " weight ", kind.has_weight);
  amp::NormPass pass;
  pass.x = guarded_values({rows, size}, at_case.dtype, 3);
  pass.weight = kind.has_weight ? guarded_values({size}, at::kFloat) : at::Tensor();
  pass.bias = kind.has_bias ? guarded_values({size}, at::kFloat) : at::Tensor();
  pass.norms = at::empty({rows, 2});
  pass.centred = kind.centred;
  pass.eps = 1e-5;
  const at::Tensor dy = guarded_values({rows, size}, at_case.dtype);
  const at::Tensor y = at::empty_like(pass.x);
  const at::Tensor dx = at::empty_like(pass.x);
  amp::norm_on_cpu(pass, y);
  const at::Tensor sums = amp::norm_backward_on_cpu(pass, dx, dy);

  SameOnEveryDevice same;
  for_each_device([&] {
    const at::Tensor norms = guarded({rows, 2}, at::kFloat);
    const amp::NormWork work{
        rows_of(pass.x),      values_of(pass.weight),
        values_of(pass.bias), reinterpret_cast<amp::RowNorm*>(norms.mutable_data_ptr<float>()),
        pass.centred,         pass.eps};
    const at::Tensor found_y = guarded({rows, size}, at_case.dtype);
    const at::Tensor found_dx = guarded({rows, size}, at_case.dtype);
    const at::Tensor parts = guarded({2, amp::row_parts(rows), size}, at::kFloat);
    const at::Tensor found_sums = guarded({2, size}, at::kFloat);
    expect_well(amp::cuda::launch_norm(work, rows_of(found_y), nullptr));
    expect_well(amp::cuda::launch_norm_backward(work, rows_of(found_dx), rows_of(dy),
                                                parts.mutable_data_ptr<float>(),
                                                found_sums.mutable_data_ptr<float>(), nullptr));
    expect_close(norms, pass.norms, what);
    expect_close(found_y, y, what);
    if (size > 1 ||
        !kind.centred) {  // one centred element has no gradient but what rounding leaves
      expect_close(found_dx, dx, what);
    }
    if (kind.has_weight) {
      expect_close(found_sums[0], sums[0], what);
    }
    if (kind.has_bias) {
      expect_close(found_sums[1], sums[1], what);
    }
    same.expect({norms, found_y, found_dx, found_sums});
  });
}

TEST(EmulatedRows, NormsAreThoseOfTheHost) {
  at::manual_seed(1);
  for (const Case& each : cases()) {
    for (const int64_t rows : kRowCounts) {
      check_norm(each, rows, {true, true, true});
    }
    check_norm(each, 9, {true, false, false});
    check_norm(each, 9, {false, true, false});
  }
}

TEST(EmulatedRows, BiasGeluHasTheBitsOfTheHost) {
  at::manual_seed(2);
  for (const Case& each : cases()) {
    for (const int64_t rows : kRowCounts) {
      const std::string what = c10::str(each.dtype, "[", rows, ", ", each.size, "]");
      const at::Tensor x = guarded_values({rows, each.size}, each.dtype, 2);
      const at::Tensor dy = guarded_values({rows, each.size}, each.dtype);
      const at::Tensor bias = guarded_values({each.size}, at::kFloat);
      const at::Tensor y = at::empty_like(x);
      const at::Tensor dx = at::empty_like(x);
      amp::bias_gelu_on_cpu(y, x, bias);
      const at::Tensor sum = amp::bias_gelu_backward_on_cpu(dx, dy, x, bias);

      SameOnEveryDevice same;
      for_each_device([&] {
        const amp::BiasGeluWork work{rows_of(x), values_of(bias)};
        const at::Tensor found_y = guarded({rows, each.size}, each.dtype);
        const at::Tensor found_dx = guarded({rows, each.size}, each.dtype);
        const at::Tensor parts = guarded({amp::row_parts(rows), each.size}, at::kFloat);
        const at::Tensor found_sum = guarded({each.size}, at::kFloat);
        expect_well(amp::cuda::launch_bias_gelu(work, rows_of(found_y), nullptr));
        expect_well(amp::cuda::launch_bias_gelu_backward(
            work, rows_of(found_dx), rows_of(dy), parts.mutable_data_ptr<float>(),
            found_sum.mutable_data_ptr<float>(), nullptr));
        EXPECT_TRUE(same_bits(found_y, y)) << what;
        EXPECT_TRUE(same_bits(found_dx, dx)) << what;
        expect_close(found_sum, sum, what);
        same.expect({found_sum});
      });
    }
  }
}

struct Losses {
  double mean;
  double counted;
  at::Tensor gradient;
};

Losses as_on_a_device(const at::Tensor& logits, const at::Tensor& targets, double smoothing) {
  const int64_t rows = logits.size(0);
  const at::Tensor log_sums = guarded({rows}, at::kFloat);
  const at::Tensor losses = guarded({rows}, at::kDouble);
  const amp::CrossEntropyWork work{rows_of(logits), targets.const_data_ptr<int64_t>(),
                                   log_sums.mutable_data_ptr<float>(), smoothing};
  const at::Tensor gradient = guarded(logits.sizes(), logits.scalar_type());
  float mean = 0.0F;
  double counted = 0.0;
  const float slope = 2.0F;
  expect_well(amp::cuda::launch_cross_entropy(work, losses.mutable_data_ptr<double>(), &mean,
                                              &counted, nullptr));
  expect_well(
      amp::cuda::launch_cross_entropy_backward(work, rows_of(gradient), &slope, &counted, nullptr));
  return {mean, counted, gradient};
}

void check_cross_entropy(const Case& at_case, int64_t rows, double smoothing) {
  const std::string what = c10::str(at_case.dtype, "[", rows, ", ", at_case.size, "]");
  amp::CrossEntropyPass pass;
  pass.logits = guarded_values({rows, at_case.size}, at_case.dtype, 5);
  pass.targets = guarded_copy(at::randint(at_case.size, {rows}, at::kLong));
  pass.targets.slice(0, 0, rows, 7).fill_(-100);
  pass.log_sums = at::empty({rows});
  pass.counted = at::empty({}, at::kDouble);
  pass.smoothing = smoothing;
  const double loss = amp::cross_entropy_on_cpu(pass).item<double>();
  const at::Tensor gradient = at::empty_like(pass.logits);
  amp::cross_entropy_backward_on_cpu(pass, gradient, at::full({}, 2.0F));

  SameOnEveryDevice same;
  for_each_device([&] {
    const Losses found = as_on_a_device(pass.logits, pass.targets, smoothing);
    EXPECT_EQ(found.counted, pass.counted.item<double>()) << what;
    if (found.counted > 0.0) {
      EXPECT_NEAR(found.mean, loss, 1e-6 * std::abs(loss) + 1e-6) << what;
    } else {
      EXPECT_TRUE(std::isnan(found.mean) && std::isnan(loss)) << what;
    }
    if (at_case.size > 1) {  // one class has no gradient but what rounding leaves
      expect_close(found.gradient, gradient, what);
    }
    if (rows > 0) {
      EXPECT_EQ(found.gradient[0].count_nonzero().item<int64_t>(), 0) << "ignored, " << what;
    }
    same.expect({found.gradient});
  });
}

TEST(EmulatedRows, CrossEntropyIsThatOfTheHost) {
  at::manual_seed(3);
  for (const Case& each : cases()) {
    for (const int64_t rows : kRowCounts) {  // all rows of 1 are ignored
      check_cross_entropy(each, rows, 0.0);
      check_cross_entropy(each, rows, 0.1);
    }
  }
}

at::Tensor longs(std::vector<int64_t> values) {
  return at::tensor(values);
}

/// Rows in packs, but from a place between accesses of 16 bytes.
TEST(EmulatedRows, RowsThatBeginBetweenAccessesAreTakenOneElementAtATime) {
  at::manual_seed(8);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const at::Tensor x = at::randn({40, 64}).to(dtype);
    const at::Tensor dy = at::randn({40, 64}).to(dtype);
    const at::Tensor bias = at::randn({64});
    const at::Tensor targets = at::randint(64, {40}, at::kLong);
    const at::Tensor norms = at::empty({40, 2});
    const auto results = [&](const at::Tensor& from, const at::Tensor& by) {
      const auto placed = [&](const at::Tensor& values) {
        return &from == &x ? values : shifted(values);
      };
      const auto to = [&] { return placed(at::zeros({40, 64}, dtype)); };
      const at::Tensor slope = placed(dy);
      const at::Tensor y = to();
      const at::Tensor dx = to();
      const at::Tensor gelu = to();
      const at::Tensor slopes = to();
      const at::Tensor sums = at::empty({3, 64});
      const at::Tensor parts = at::empty({2, amp::row_parts(40), 64});
      auto* const sum = sums.mutable_data_ptr<float>();
      auto* const part = parts.mutable_data_ptr<float>();
      const amp::NormWork work{
          rows_of(from), values_of(by),
          values_of(by), reinterpret_cast<amp::RowNorm*>(norms.mutable_data_ptr<float>()),
          true,          1e-5};
      expect_well(amp::cuda::launch_norm(work, rows_of(y), nullptr));
      expect_well(
          amp::cuda::launch_norm_backward(work, rows_of(dx), rows_of(slope), part, sum, nullptr));
      const amp::BiasGeluWork smooth{rows_of(from), values_of(by)};
      expect_well(amp::cuda::launch_bias_gelu(smooth, rows_of(gelu), nullptr));
      expect_well(amp::cuda::launch_bias_gelu_backward(smooth, rows_of(slopes), rows_of(slope),
                                                       part, sum + 128, nullptr));
      const Losses losses = as_on_a_device(from, targets, 0.1);
      return std::vector<at::Tensor>{
          y, dx, gelu, slopes, sums, losses.gradient, at::full({1}, losses.mean)};
    };
    const auto expected = results(x, bias);
    for (const bool shifts_bias : {false, true}) {
      const auto found = results(shifted(x), shifts_bias ? shifted(bias) : bias);
      for (size_t i = 0; i < found.size(); ++i) {
        expect_close(found[i], expected[i], c10::str("result ", i, " ", dtype));
      }
    }
  }
}

TEST(EmulatedRows, ATargetThatIsNoClassMakesTheLossNan) {
  const at::Tensor logits = at::randn({3, 4});
  for (const int64_t target : {-1L, 4L, 1L << 40}) {
    EXPECT_TRUE(std::isnan(as_on_a_device(logits, longs({0, 1, target}), 0.1).mean));
  }
  EXPECT_FALSE(std::isnan(as_on_a_device(logits, longs({0, 1, -100}), 0.1).mean));
}

TEST(EmulatedRows, NotANumberInARowReachesItsLoss) {
  for (const int64_t size : {300, 301}) {  // in a pack, and alone
    for (const int64_t place : {0L, 7L, 8L, size - 1}) {
      at::Tensor logits = at::randn({2, size});
      logits[1][place] = NAN;
      EXPECT_TRUE(std::isnan(as_on_a_device(logits, at::zeros({2}, at::kLong), 0.0).mean)) << place;
      logits[1][place] = INFINITY;
      EXPECT_TRUE(std::isnan(as_on_a_device(logits, at::ones({2}, at::kLong), 0.0).mean)) << place;
    }
  }
}

/// Masked classes; whole packs of them, and a row in which all are.
TEST(EmulatedRows, LogitsOfMinusInfinityHaveNoShare) {
  at::manual_seed(9);
  at::Tensor logits = at::randn({4, 1030}) * 5;
  logits.slice(1, 0, 500).fill_(-INFINITY);
  const at::Tensor targets = at::full({4}, 700, at::kLong);
  const double expected = at::cross_entropy_loss(logits.to(at::kDouble), targets).item<double>();
  EXPECT_NEAR(as_on_a_device(logits, targets, 0.0).mean, expected, 1e-6 * expected);
  logits[2].fill_(-INFINITY);
  EXPECT_TRUE(std::isnan(as_on_a_device(logits, targets, 0.0).mean));
}

/// The largest logit comes last in each thread's share, so that each pack brings a larger one.
TEST(EmulatedRows, RisingLogitsHaveTheLossOfTheHost) {
  const at::Tensor rising = at::arange(5000, at::kFloat).mul(0.05).view({1, 5000});
  for (const at::Tensor& logits : {rising, rising.flip({1}).contiguous(), rising * 100}) {
    const at::Tensor target = longs({4000});
    const double expected = at::cross_entropy_loss(logits.to(at::kDouble), target).item<double>();
    EXPECT_NEAR(as_on_a_device(logits, target, 0.0).mean, expected, 1e-6 * expected);
  }
}

}  // namespace
}  // namespace lockstep
