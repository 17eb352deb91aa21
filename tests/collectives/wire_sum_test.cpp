// What sums lose that are rounded to the tensors' dtype at each rank, as NCCL's are.
#include "nccl_ranks.h"
#include "test_names.h"

#include <lockstep/collectives/impl/wire_sum.h>

#include <algorithm>
#include <random>

namespace lockstep {

using namespace detail;

namespace {

constexpr int64_t kElements = 200;

std::vector<at::Tensor> random_terms(int ranks, at::ScalarType dtype) {
  std::vector<at::Tensor> terms;
  for (int rank = 0; rank < ranks; ++rank) {
    terms.push_back(at::randn({kElements}).to(dtype));
  }
  return terms;
}

/// |sum - exact| / sum of magnitudes, of the worst element.
double worst_error(const at::Tensor& sum, const std::vector<at::Tensor>& terms) {
  at::Tensor exact = at::zeros({kElements}, at::kDouble), magnitudes = exact.clone();
  for (const at::Tensor& term : terms) {
    exact += term.to(at::kDouble);
    magnitudes += term.to(at::kDouble).abs();
  }
  return ((sum.to(at::kDouble) - exact).abs() / magnitudes).max().item<double>();
}

/// Two sums at a time, chosen at random, until one is left: a ring, a tree, or between the two.
at::Tensor sum_in_any_order(std::vector<at::Tensor> terms, std::mt19937& random) {
  while (terms.size() > 1) {
    std::shuffle(terms.begin(), terms.end(), random);
    const at::Tensor sum = terms.back() + terms[terms.size() - 2];
    terms.pop_back();
    terms.back() = sum;
  }
  return terms[0];
}

at::Tensor sum_of_a_ring(const std::vector<at::Tensor>& terms) {
  at::Tensor sum = terms[0];
  for (size_t rank = 1; rank < terms.size(); ++rank) {
    sum = sum + terms[rank];
  }
  return sum;
}

TEST(WireSum, AreRoundedAtEachRankByNcclAndOnceByHosts) {
  run_nccl({2}, [](NcclRank& rank, Communicator& nccl) {
    EXPECT_TRUE(rounds_at_each_rank(nccl));
    EXPECT_FALSE(rounds_at_each_rank(rank.host));
  });
}

TEST(WireSum, HaveTheBoundsOfTheManual) {
  EXPECT_NEAR(sum_error_bound(at::kBFloat16, 2), 0.0039, 5e-5);
  EXPECT_NEAR(sum_error_bound(at::kBFloat16, 8), 0.0277, 5e-5);
  EXPECT_NEAR(sum_error_bound(at::kBFloat16, 64), 0.278, 5e-4);
  EXPECT_NEAR(sum_error_bound(at::kHalf, 8), 0.0034, 5e-5);
  EXPECT_NEAR(sum_error_bound(at::kHalf, 64), 0.0312, 5e-5);
  EXPECT_NEAR(sum_error_bound(at::kHalf, 1024), 0.648, 5e-4);
  EXPECT_NEAR(sum_error_bound(at::kFloat, 1024), 6.1e-5, 5e-7);
}

TEST(WireSum, AreIn32BitsAbove8RanksOfBf16AndAbove64OfFp16) {
  EXPECT_EQ(dtype_for_sums(at::kBFloat16, 8), at::kBFloat16);
  EXPECT_EQ(dtype_for_sums(at::kBFloat16, 9), at::kFloat);
  EXPECT_EQ(dtype_for_sums(at::kHalf, 64), at::kHalf);
  EXPECT_EQ(dtype_for_sums(at::kHalf, 65), at::kFloat);
  EXPECT_EQ(dtype_for_sums(at::kFloat, 100000), at::kFloat);
  EXPECT_EQ(dtype_for_sums(at::kDouble, 100000), at::kDouble);
}

TEST(WireSum, StayWithinTheirBoundInEveryOrder) {
  std::mt19937 random(17);
  for (const int ranks : {2, 3, 8, 9, 64, 65, 300}) {
    for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf, at::kFloat}) {
      const std::vector<at::Tensor> terms = random_terms(ranks, dtype);
      const double bound = sum_error_bound(dtype, ranks);
      EXPECT_LE(worst_error(sum_of_a_ring(terms), terms), bound) << ranks << " of " << dtype;
      EXPECT_LE(worst_error(sum_in_any_order(terms, random), terms), bound)
          << ranks << " of " << dtype;
    }
  }
}

TEST(WireSum, OfTheSimulatedNcclStayWithinTheirBound) {
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    const std::vector<at::Tensor> terms = random_terms(8, dtype);
    run_nccl({8}, [&](NcclRank& rank, Communicator& nccl) {
      const at::Tensor tensor = on_fake_device(terms[static_cast<size_t>(rank.rank())]);
      nccl.all_reduce(tensor).wait();
      const double error = worst_error(rank.read(tensor), terms);
      EXPECT_LE(error, sum_error_bound(dtype, 8)) << dtype;
      EXPECT_GT(error, 0.0) << dtype;
    });
  }
}

TEST(WireSum, OfEqualTermsStandStillInBf16AndNotIn32Bits) {
  const std::vector<at::Tensor> halves(1024, at::ones({kElements}, at::kBFloat16));
  EXPECT_EQ(sum_of_a_ring(halves)[0].item<float>(), 256.0F);
  const std::vector<at::Tensor> floats(1024, at::ones({kElements}));
  EXPECT_EQ(sum_of_a_ring(floats)[0].item<float>(), 1024.0F);
}

}  // namespace
}  // namespace lockstep
