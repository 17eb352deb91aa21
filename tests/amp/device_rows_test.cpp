// The rows and columns of the fused layers for device memory, run here on the host: the same source
// as on a device, sums in the order of its threads, against the kernels for host memory.
#include "spans.h"

#include <lockstep/amp/cuda/row_work.h>
#include <lockstep/amp/cuda/span_arrays.h>
#include <lockstep/amp/layer_passes.h>

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

using amp::Rows;
using testing::same_bits;

/// A block's threads, one after another.
struct LoopTeam {
  using Lanes = std::array<float, amp::kRowLanes>;
  static constexpr size_t kWarp = 32;

  bool first() const { return true; }

  template <typename Body>
  void each(int64_t size, const Body& body) const {
    for (int64_t i = size - 1; i >= 0; --i) {
      body(i);
    }
  }
  template <typename Term>
  float sum(int64_t size, const Term& term) const {
    Lanes lanes{};
    for (int64_t i = 0; i < size; ++i) {
      lanes[static_cast<size_t>(i % amp::kRowLanes)] += term(i);
    }
    return joined(lanes, [](float a, float b) { return a + b; });
  }
  template <typename Term>
  float max(int64_t size, const Term& term) const {
    const auto larger = [](float a, float b) { return b > a ? b : a; };
    Lanes lanes{};
    for (int64_t k = 0; k < amp::kRowLanes; ++k) {
      lanes[static_cast<size_t>(k)] = term(k < size ? k : 0);
    }
    for (int64_t i = 0; i < size; ++i) {
      float& lane = lanes[static_cast<size_t>(i % amp::kRowLanes)];
      lane = larger(lane, term(i));
    }
    return joined(lanes, larger);
  }

 private:
  template <typename Join>
  static float joined(Lanes lanes, const Join& join) {
    for (size_t step = 1; step < kWarp; step *= 2) {
      const Lanes before = lanes;
      for (size_t k = 0; k < lanes.size(); ++k) {
        lanes[k] = join(before[k], before[k ^ step]);
      }
    }
    float all = lanes[0];
    for (size_t k = kWarp; k < lanes.size(); k += kWarp) {
      all = join(all, lanes[k]);
    }
    return all;
  }
};

Rows rows_of(const at::Tensor& tensor) {
  return {amp::elements_of(tensor), tensor.size(0), tensor.size(1)};
}

const float* values_of(const at::Tensor& parameter) {
  return parameter.defined() ? parameter.const_data_ptr<float>() : nullptr;
}

/// The gradient of a parameter from its parts, which `part(index, column)` writes.
template <typename Part>
at::Tensor summed(const at::Tensor& parts, int64_t size, const Part& part) {
  for (int index = amp::kRowParts - 1; index >= 0; --index) {
    for (int64_t i = 0; i < size; ++i) {
      part(index, i);
    }
  }
  at::Tensor sums = at::empty({size});
  for (int64_t i = 0; i < size; ++i) {
    sums.mutable_data_ptr<float>()[i] = amp::sum_of_parts(parts.const_data_ptr<float>(), size, i);
  }
  return sums;
}

/// Sums have another order here and there: a last bit differs, of the dtype once it is rounded.
void expect_close(const at::Tensor& found, const at::Tensor& expected, const std::string& what) {
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
    for (const int64_t size : {1, 5, 32, 127, 128, 130, 1000}) {
      all.push_back({dtype, size});
    }
  }
  return all;
}

constexpr int64_t kRows = 70;  // more than there are parts, and no multiple

void check_norm(const Case& at_case, bool centred, bool has_weight, bool has_bias) {
  const int64_t size = at_case.size;
  const std::string what = c10::str(at_case.dtype, "[", size, "] centred ", centred, " weight ",
                                    has_weight, " bias ", has_bias);
  amp::NormPass pass;
  pass.x = (at::randn({kRows, size}) * 3 + 1).to(at_case.dtype);
  pass.weight = has_weight ? at::randn({size}) : at::Tensor();
  pass.bias = has_bias ? at::randn({size}) : at::Tensor();
  pass.norms = at::empty({kRows, 2});
  pass.centred = centred;
  pass.eps = 1e-5;
  const at::Tensor dy = at::randn({kRows, size}).to(at_case.dtype);
  const at::Tensor y = at::empty_like(pass.x);
  const at::Tensor dx = at::empty_like(pass.x);
  amp::norm_on_cpu(pass, y);
  const at::Tensor sums = amp::norm_backward_on_cpu(pass, dx, dy);

  const at::Tensor norms = at::empty({kRows, 2});
  const amp::NormWork work{rows_of(pass.x),
                           values_of(pass.weight),
                           values_of(pass.bias),
                           reinterpret_cast<amp::RowNorm*>(norms.mutable_data_ptr<float>()),
                           centred,
                           pass.eps};
  const at::Tensor found_y = at::empty_like(y);
  const at::Tensor found_dx = at::empty_like(dx);
  for (int64_t row = kRows - 1; row >= 0; --row) {
    work.forward(LoopTeam(), rows_of(found_y), row);
    work.backward(LoopTeam(), rows_of(found_dx), rows_of(dy), row);
  }
  expect_close(norms, pass.norms, what);
  expect_close(found_y, y, what);
  if (size > 1 || !centred) {  // one centred element has no gradient but what rounding leaves
    expect_close(found_dx, dx, what);
  }
  const at::Tensor parts = at::empty({2, amp::kRowParts, size});
  auto* const weight_parts = parts.mutable_data_ptr<float>();
  auto* const bias_parts = weight_parts + amp::kRowParts * size;
  const auto part = [&](int index, int64_t i) {
    work.sum_part(rows_of(dy), weight_parts, bias_parts, index, i);
  };
  if (has_weight) {
    expect_close(summed(parts[0], size, part), sums[0], what);
  }
  if (has_bias) {
    expect_close(summed(parts[1], size, part), sums[1], what);
  }
}

TEST(DeviceRows, NormsAreThoseOfTheHost) {
  at::manual_seed(1);
  for (const Case& each : cases()) {
    check_norm(each, /*centred=*/true, /*has_weight=*/true, /*has_bias=*/true);
    check_norm(each, /*centred=*/true, /*has_weight=*/false, /*has_bias=*/false);
    check_norm(each, /*centred=*/false, /*has_weight=*/true, /*has_bias=*/false);
  }
}

TEST(DeviceRows, BiasGeluHasTheBitsOfTheHost) {
  at::manual_seed(2);
  for (const Case& each : cases()) {
    const at::Tensor x = (at::randn({kRows, each.size}) * 2).to(each.dtype);
    const at::Tensor dy = at::randn({kRows, each.size}).to(each.dtype);
    const at::Tensor bias = at::randn({each.size});
    const at::Tensor y = at::empty_like(x);
    const at::Tensor dx = at::empty_like(x);
    amp::bias_gelu_on_cpu(y, x, bias);
    const at::Tensor sum = amp::bias_gelu_backward_on_cpu(dx, dy, x, bias);

    const amp::BiasGeluWork work{rows_of(x), values_of(bias)};
    const at::Tensor found_y = at::empty_like(x);
    const at::Tensor found_dx = at::empty_like(x);
    for (int64_t row = 0; row < kRows; ++row) {
      work.forward(LoopTeam(), rows_of(found_y), row);
    }
    const at::Tensor parts = at::empty({amp::kRowParts, each.size});
    const at::Tensor found_sum = summed(parts, each.size, [&](int index, int64_t i) {
      work.backward_part(rows_of(found_dx), rows_of(dy), parts.mutable_data_ptr<float>(), index, i);
    });
    EXPECT_TRUE(same_bits(found_y, y)) << each.dtype << each.size;
    EXPECT_TRUE(same_bits(found_dx, dx)) << each.dtype << each.size;
    expect_close(found_sum, sum, c10::str(each.dtype, each.size));
  }
}

struct Losses {
  double mean;
  at::Tensor gradient;
};

Losses by_rows(const at::Tensor& logits, const at::Tensor& targets, double smoothing) {
  const at::Tensor log_sums = at::empty({logits.size(0)});
  const amp::CrossEntropyWork work{rows_of(logits), targets.const_data_ptr<int64_t>(),
                                   log_sums.mutable_data_ptr<float>(), smoothing};
  const at::Tensor gradient = at::empty_like(logits);
  double sum = 0.0;
  double counted = 0.0;
  for (int64_t row = 0; row < logits.size(0); ++row) {
    sum += work.forward(LoopTeam(), row);
    counted += work.counts(row) ? 1.0 : 0.0;
  }
  for (int64_t row = 0; row < logits.size(0); ++row) {
    work.backward(LoopTeam(), rows_of(gradient), static_cast<float>(2.0 / counted), row);
  }
  return {sum / counted, gradient};
}

TEST(DeviceRows, CrossEntropyIsThatOfTheHost) {
  at::manual_seed(3);
  for (const Case& each : cases()) {
    for (const double smoothing : {0.0, 0.1}) {
      amp::CrossEntropyPass pass;
      pass.logits = (at::randn({kRows, each.size}) * 5).to(each.dtype);
      pass.targets = at::randint(each.size, {kRows}, at::kLong);
      pass.targets.slice(0, 0, kRows, 7).fill_(-100);
      pass.log_sums = at::empty({kRows});
      pass.counted = at::empty({}, at::kDouble);
      pass.smoothing = smoothing;
      const double loss = amp::cross_entropy_on_cpu(pass).item<double>();
      const at::Tensor gradient = at::empty_like(pass.logits);
      amp::cross_entropy_backward_on_cpu(pass, gradient, at::full({}, 2.0F));

      const Losses found = by_rows(pass.logits, pass.targets, smoothing);
      EXPECT_NEAR(found.mean, loss, 1e-6 * std::abs(loss) + 1e-6) << each.dtype << each.size;
      if (each.size > 1) {  // one class has no gradient but what rounding leaves
        expect_close(found.gradient, gradient, c10::str(each.dtype, each.size));
      }
      EXPECT_EQ(found.gradient[7].count_nonzero().item<int64_t>(), 0);
    }
  }
}

at::Tensor longs(std::vector<int64_t> values) {
  return at::tensor(values);
}

TEST(DeviceRows, ATargetThatIsNoClassMakesTheLossNan) {
  const at::Tensor logits = at::randn({3, 4});
  for (const int64_t target : {-1L, 4L, 1L << 40}) {
    EXPECT_TRUE(std::isnan(by_rows(logits, longs({0, 1, target}), 0.1).mean));
  }
  EXPECT_FALSE(std::isnan(by_rows(logits, longs({0, 1, -100}), 0.1).mean));
}

TEST(DeviceRows, NotANumberInARowReachesItsLoss) {
  at::Tensor logits = at::randn({2, 300});
  logits[1][299] = NAN;
  EXPECT_TRUE(std::isnan(by_rows(logits, at::zeros({2}, at::kLong), 0.0).mean));
}

}  // namespace
}  // namespace lockstep
