#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/kernels/reduce_kernels.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "simd_targets.h"

namespace lockstep {
namespace {

using kernels::make_reduction;

const int64_t kSizes[] = {0, 1, 7, 8, 9, 63, 64, 65, 1000, 4097};

template <class T>
constexpr c10::ScalarType kType = c10::CppTypeToScalarType<T>::value;
template <class T>
using Wide =
    std::conditional_t<std::is_same_v<T, c10::Half> || std::is_same_v<T, c10::BFloat16>, float, T>;

/// Inputs of several ranks, starting at an address that no vector is aligned to.
template <class T>
class Ranks {
 public:
  Ranks(int ranks, int64_t n) : n_(static_cast<size_t>(n)) {
    std::mt19937 generator(static_cast<unsigned>(ranks * 10000 + n));
    std::uniform_int_distribution<int> uniform(-120, 120);
    for (int rank = 0; rank < ranks; ++rank) {
      inputs_.emplace_back(n_ + 1);
      for (T& value : inputs_.back()) {
        const int number = uniform(generator);
        value = std::is_integral_v<T> ? static_cast<T>(number)
                                      : static_cast<T>(static_cast<float>(number) / 7.f);
      }
    }
  }

  std::vector<T> reduce(ReduceOp op) const {
    std::vector<const void*> sources;
    for (const auto& input : inputs_) {
      sources.push_back(input.data() + 1);
    }
    std::vector<T> first(n_ + 1, T(9)), second(n_ + 1, T(9));
    void* destinations[] = {first.data(), second.data()};
    kernels::reduce(make_reduction(op, size()), kType<T>, sources.data(), size(), kType<T>,
                    destinations, 2, static_cast<int64_t>(n_));
    EXPECT_EQ(std::memcmp(first.data(), second.data(), first.size() * sizeof(T)), 0);
    EXPECT_TRUE(first.back() == T(9)) << "wrote behind the end";
    first.pop_back();
    return first;
  }

  /// Rank by rank in the wide type, rounded once.
  std::vector<T> expected(ReduceOp op) const {
    const float before = static_cast<float>(1.0 / op.predivide_factor());
    const float divisor = static_cast<float>(size() / op.predivide_factor());
    std::vector<T> result;
    for (size_t i = 1; i <= n_; ++i) {
      Wide<T> sum = static_cast<Wide<T>>(inputs_[0][i]);
      const bool avg = op.kind() == ReduceOp::Kind::avg;
      if constexpr (std::is_floating_point_v<Wide<T>>) {
        sum = avg ? sum * before : sum;
      }
      for (size_t k = 1; k < inputs_.size(); ++k) {
        const Wide<T> value = static_cast<Wide<T>>(inputs_[k][i]);
        if (op.kind() == ReduceOp::Kind::max) {
          sum = std::max(sum, value);
        } else if (op.kind() == ReduceOp::Kind::min) {
          sum = std::min(sum, value);
        } else if constexpr (std::is_floating_point_v<Wide<T>>) {
          const volatile Wide<T> scaled = avg ? value * before : value;
          sum = sum + scaled;
        } else {
          sum = static_cast<T>(static_cast<std::make_unsigned_t<T>>(sum) +
                               static_cast<std::make_unsigned_t<T>>(value));
        }
      }
      if constexpr (std::is_floating_point_v<Wide<T>>) {
        sum = avg ? sum / divisor : sum;
      }
      result.push_back(static_cast<T>(sum));
    }
    return result;
  }

  int size() const { return static_cast<int>(inputs_.size()); }

 private:
  size_t n_;
  std::vector<std::vector<T>> inputs_;
};

template <class T>
void check(ReduceOp op) {
  for (int ranks : {1, 2, 3, 8}) {
    for (int64_t n : kSizes) {
      const Ranks<T> input(ranks, n);
      const std::vector<T> found = input.reduce(op);
      const std::vector<T> expected = input.expected(op);
      if (n > 0) {
        ASSERT_EQ(std::memcmp(found.data(), expected.data(), found.size() * sizeof(T)), 0)
            << kType<T> << ", ranks " << ranks << ", n " << n;
      }
    }
  }
}

class ReduceKernels : public testing::EachSimdTarget {};

TEST_P(ReduceKernels, SumsFloats) {
  check<float>(ReduceOp::sum());
  check<double>(ReduceOp::sum());
  check<c10::Half>(ReduceOp::sum());
  check<c10::BFloat16>(ReduceOp::sum());
}

TEST_P(ReduceKernels, SumsIntegersAndWrapsAround) {
  check<int8_t>(ReduceOp::sum());
  check<uint8_t>(ReduceOp::sum());
  check<int16_t>(ReduceOp::sum());
  check<int32_t>(ReduceOp::sum());
  check<int64_t>(ReduceOp::sum());
}

TEST_P(ReduceKernels, TakesTheMaximumOrTheMinimum) {
  for (const ReduceOp op : {ReduceOp::max(), ReduceOp::min()}) {
    check<float>(op);
    check<double>(op);
    check<c10::Half>(op);
    check<c10::BFloat16>(op);
    check<int8_t>(op);
    check<uint8_t>(op);
    check<int16_t>(op);
    check<int32_t>(op);
    check<int64_t>(op);
  }
}

TEST_P(ReduceKernels, AveragesDivideTheSum) {
  check<float>(ReduceOp::avg());
  check<c10::Half>(ReduceOp::avg());
  check<c10::BFloat16>(ReduceOp::avg());
}

TEST_P(ReduceKernels, PredivideScalesBeforeAndAfter) {
  check<float>(ReduceOp::avg().predivide(3.0));
  check<c10::Half>(ReduceOp::avg().predivide(4.0));
  check<c10::BFloat16>(ReduceOp::avg().predivide(2.0));
}

TEST_P(ReduceKernels, AverageOfNineThousandFitsInHalfWhereTheSumDoesNot) {
  const std::vector<c10::Half> in(13, c10::Half(9000.f));
  const std::vector<const void*> sources(8, in.data());
  std::vector<c10::Half> out(in.size());
  void* destination = out.data();
  kernels::reduce(make_reduction(ReduceOp::avg(), 8), c10::kHalf, sources.data(), 8, c10::kHalf,
                  &destination, 1, 13);
  EXPECT_EQ(out, std::vector<c10::Half>(13, c10::Half(9000.f)));
  kernels::reduce(make_reduction(ReduceOp::sum(), 8), c10::kHalf, sources.data(), 8, c10::kHalf,
                  &destination, 1, 13);
  EXPECT_TRUE(std::isinf(static_cast<float>(out[12])));
}

TEST_P(ReduceKernels, HalfSumsAreRoundedOnce) {
  // In half steps 2048 + 1 + 1 stays 2048, since each sum rounds down; in fp32 it is 2050.
  const c10::Half big[] = {2048.f}, one[] = {1.f};
  const void* sources[] = {big, one, one};
  c10::Half out[1];
  void* destination = out;
  kernels::reduce({}, c10::kHalf, sources, 3, c10::kHalf, &destination, 1, 1);
  EXPECT_EQ(static_cast<float>(out[0]), 2050.f);
}

TEST_P(ReduceKernels, SubnormalHalvesAddExactly) {
  const std::vector<c10::Half> tiny(17, c10::Half(0x1p-24f));
  const void* sources[] = {tiny.data(), tiny.data(), tiny.data()};
  std::vector<c10::Half> out(17);
  void* destination = out.data();
  kernels::reduce({}, c10::kHalf, sources, 3, c10::kHalf, &destination, 1, 17);
  EXPECT_EQ(out, std::vector<c10::Half>(17, c10::Half(3 * 0x1p-24f)));
}

template <class T>
void check_nan_wins() {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<T> with(19, T(5.f)), without(19, T(7.f));
  with[3] = T(nan);
  with[18] = T(nan);
  for (bool nan_first : {true, false}) {
    const void* sources[] = {nan_first ? with.data() : without.data(),
                             nan_first ? without.data() : with.data()};
    for (ReduceOp op : {ReduceOp::max(), ReduceOp::min(), ReduceOp::sum(), ReduceOp::avg()}) {
      std::vector<T> out(19);
      void* destination = out.data();
      kernels::reduce(make_reduction(op, 2), kType<T>, sources, 2, kType<T>, &destination, 1, 19);
      for (size_t i = 0; i < out.size(); ++i) {
        ASSERT_EQ(std::isnan(static_cast<float>(out[i])), i == 3 || i == 18) << i;
      }
    }
  }
}

TEST_P(ReduceKernels, NotANumberWinsEveryReduction) {
  check_nan_wins<float>();
  check_nan_wins<double>();
  check_nan_wins<c10::Half>();
  check_nan_wins<c10::BFloat16>();
}

TEST_P(ReduceKernels, InfinityStaysInfinity) {
  const std::vector<c10::BFloat16> inf(5, c10::BFloat16(INFINITY)), one(5, c10::BFloat16(1.f));
  const void* sources[] = {one.data(), inf.data()};
  std::vector<c10::BFloat16> out(5);
  void* destination = out.data();
  kernels::reduce({}, c10::kBFloat16, sources, 2, c10::kBFloat16, &destination, 1, 5);
  EXPECT_TRUE(std::isinf(static_cast<float>(out[0])) && std::isinf(static_cast<float>(out[4])));
}

TEST_P(ReduceKernels, PartialSumsInFloatGiveTheSameBitsAsOneSum) {
  std::vector<std::vector<c10::Half>> inputs;
  for (int k = 0; k < 4; ++k) {
    inputs.emplace_back();
    for (int i = 0; i < 133; ++i) {
      inputs.back().push_back(c10::Half(static_cast<float>((i * 7 + k * 13) % 64)));
    }
  }
  const auto reduction = make_reduction(ReduceOp::avg(), 4);
  const void* all[] = {inputs[0].data(), inputs[1].data(), inputs[2].data(), inputs[3].data()};
  std::vector<c10::Half> whole(133), parts(133);
  void* destination = whole.data();
  kernels::reduce(reduction, c10::kHalf, all, 4, c10::kHalf, &destination, 1, 133);

  std::vector<float> left(133), right(133);
  void* left_data = left.data();
  void* right_data = right.data();
  kernels::reduce({}, c10::kHalf, all, 2, c10::kFloat, &left_data, 1, 133);
  kernels::reduce({}, c10::kHalf, all + 2, 2, c10::kFloat, &right_data, 1, 133);
  const void* partial[] = {left.data(), right.data()};
  destination = parts.data();
  kernels::reduce(reduction, c10::kFloat, partial, 2, c10::kHalf, &destination, 1, 133);
  EXPECT_EQ(whole, parts);
}

INSTANTIATE_TEST_SUITE_P(Simd, ReduceKernels,
                         ::testing::ValuesIn(hwy::SupportedAndGeneratedTargets()),
                         testing::simd_target_name);

TEST(ReduceKernelErrors, UnknownTypesAreNamed) {
  const void* source = nullptr;
  void* destination = nullptr;
  EXPECT_THROW(
      kernels::reduce({}, c10::kComplexFloat, &source, 1, c10::kComplexFloat, &destination, 1, 0),
      Error);
  EXPECT_THROW(kernels::reduce({}, c10::kLong, &source, 1, c10::kFloat, &destination, 1, 0), Error);
}

}  // namespace
}  // namespace lockstep
