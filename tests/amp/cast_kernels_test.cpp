#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <gtest/gtest.h>
#include <lockstep/amp/impl/cast_kernels.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/half_bits.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "collectives/simd_targets.h"

namespace lockstep {
namespace {

using kernels::accumulate;
using kernels::cast_scaled;

const int64_t kSizes[] = {0, 1, 7, 8, 9, 63, 64, 65, 1000, 4097};

template <class T>
constexpr c10::ScalarType kType = c10::CppTypeToScalarType<T>::value;

template <class T>
std::vector<T> numbers(int64_t n) {
  std::mt19937 generator(static_cast<unsigned>(n) + 1);
  std::uniform_real_distribution<float> uniform(-300.f, 300.f);
  const float special[] = {0.f,      -0.f,   1e-7f,   -6e-8f,   3e-8f,     65519.f, 65520.f,
                           -70000.f, 1e-40f, 3.4e38f, INFINITY, -INFINITY, 6.1e-5f, 1.5f};
  std::vector<T> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] =
        static_cast<T>(i % 3 == 0 ? special[i / 3 % std::size(special)] : uniform(generator));
  }
  return values;
}

template <class T>
void expect_same_bits(const std::vector<T>& found, const std::vector<T>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::memcmp(&found[i], &expected[i], sizeof(T)) != 0) {
      const bool both_nan = found[i] != found[i] && expected[i] != expected[i];
      ASSERT_TRUE(both_nan) << "element " << i << " of " << found.size() << " is " << found[i]
                            << ", expected " << expected[i];
    }
  }
}

template <class In, class Out>
void check_cast(double factor) {
  for (int64_t n : kSizes) {
    const std::vector<In> in = numbers<In>(n);
    std::vector<Out> out(in.size() + 1, Out(42.f));
    std::vector<Out> expected;
    for (In value : in) {
      expected.push_back(static_cast<Out>(static_cast<float>(value) * static_cast<float>(factor)));
    }
    expected.push_back(Out(42.f));  // nothing is written behind the end
    cast_scaled(out.data(), kType<Out>, in.data(), kType<In>, n, factor);
    expect_same_bits(out, expected);
  }
}

template <class In>
void check_cast_to_all(double factor) {
  check_cast<In, float>(factor);
  check_cast<In, c10::Half>(factor);
  check_cast<In, c10::BFloat16>(factor);
}

class CastKernels : public testing::EachSimdTarget {};

TEST_P(CastKernels, CastsEveryPairLikeScalarCode) {
  check_cast_to_all<float>(1.0);
  check_cast_to_all<c10::Half>(1.0);
  check_cast_to_all<c10::BFloat16>(1.0);
}

TEST_P(CastKernels, MultipliesBeforeItRounds) {
  for (double factor : {0.5, 1.0 / 3.0, 1024.0, 1e-6}) {
    check_cast_to_all<float>(factor);
    check_cast_to_all<c10::Half>(factor);
    check_cast_to_all<c10::BFloat16>(factor);
  }
}

TEST_P(CastKernels, EveryHalfSurvivesTheTripThroughFloat) {
  std::vector<c10::Half> in(65536);
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    in[bits].x = static_cast<uint16_t>(bits);
  }
  std::vector<float> wide(in.size());
  std::vector<c10::Half> back(in.size());
  cast_scaled(wide.data(), c10::kFloat, in.data(), c10::kHalf, 65536, 1.0);
  cast_scaled(back.data(), c10::kHalf, wide.data(), c10::kFloat, 65536, 1.0);
  for (size_t i = 0; i < in.size(); ++i) {
    if (std::isnan(static_cast<float>(in[i]))) {
      ASSERT_TRUE(std::isnan(wide[i]) && std::isnan(static_cast<float>(back[i]))) << i;
    } else {
      ASSERT_EQ(back[i].x, in[i].x);
    }
  }
}

TEST_P(CastKernels, NotANumberStaysOne) {
  std::vector<float> in(9, std::numeric_limits<float>::quiet_NaN());
  in[2] = kernels::float_of_bits(0x7fffffffu);  // adding the rounding to these bits overflows
  in[8] = kernels::float_of_bits(0xffffffffu);
  std::vector<c10::Half> half(in.size());
  std::vector<c10::BFloat16> brain(in.size());
  cast_scaled(half.data(), c10::kHalf, in.data(), c10::kFloat, 9, 0.5);
  cast_scaled(brain.data(), c10::kBFloat16, in.data(), c10::kFloat, 9, 0.5);
  for (size_t i = 0; i < in.size(); ++i) {
    EXPECT_TRUE(std::isnan(static_cast<float>(half[i])));
    EXPECT_TRUE(std::isnan(static_cast<float>(brain[i])));
  }
}

TEST_P(CastKernels, DoublesAreScaledInDouble) {
  std::vector<double> values = {1.0, 1e300, -3.0, 7.0, 1e-300};
  cast_scaled(values.data(), c10::kDouble, values.data(), c10::kDouble, 5, 1.0 / 3.0);
  EXPECT_EQ(values, (std::vector<double>{1.0 * (1.0 / 3.0), 1e300 * (1.0 / 3.0), -3.0 * (1.0 / 3.0),
                                         7.0 * (1.0 / 3.0), 1e-300 * (1.0 / 3.0)}));
}

template <class In>
void check_accumulate() {
  for (int64_t n : kSizes) {
    const std::vector<In> in = numbers<In>(n);
    std::vector<float> sum(in.size());
    std::vector<float> expected(in.size());
    for (size_t i = 0; i < in.size(); ++i) {
      sum[i] = 0.1f * static_cast<float>(i);
      expected[i] = sum[i] + static_cast<float>(in[i]);
    }
    accumulate(sum.data(), in.data(), kType<In>, n);
    expect_same_bits(sum, expected);
  }
}

TEST_P(CastKernels, AccumulatesInFloat) {
  check_accumulate<float>();
  check_accumulate<c10::Half>();
  check_accumulate<c10::BFloat16>();
}

INSTANTIATE_TEST_SUITE_P(Simd, CastKernels,
                         ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         testing::simd_target_name);

TEST(CastKernelErrors, UnknownTypesAreNamed) {
  int64_t in = 1;
  float out = 0.f;
  try {
    cast_scaled(&out, c10::kFloat, &in, c10::kLong, 1, 1.0);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("Long"), std::string::npos) << error.what();
  }
  EXPECT_THROW(accumulate(&out, &in, c10::kLong, 1), Error);
}

TEST(HalfBits, ScalarConversionsAgreeWithTorch) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    c10::Half half;
    half.x = static_cast<uint16_t>(bits);
    const float expected = half;
    const float found = kernels::half_to_float(half.x);
    ASSERT_TRUE(found == expected || (std::isnan(found) && std::isnan(expected))) << bits;
  }
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 977) {
    const float value = kernels::float_of_bits(static_cast<uint32_t>(bits));
    if (!std::isnan(value)) {
      ASSERT_EQ(kernels::float_to_half(value), c10::Half(value).x) << value;
    }
  }
}

}  // namespace
}  // namespace lockstep
