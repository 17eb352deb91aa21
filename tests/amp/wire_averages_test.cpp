// Averages of 16-bit gradients, with ranks that are threads.
#include "collectives/thread_ranks.h"
#include "spans.h"
#include "test_names.h"

#include <lockstep/collectives/communicator.h>

#include <cmath>
#include <vector>

namespace lockstep {
namespace {

/// What every rank has after averaging `value(rank)`, checked to have the same bits everywhere.
at::Tensor averaged(int ranks, ReduceOp op, const std::function<at::Tensor(int)>& value) {
  std::vector<at::Tensor> results(static_cast<size_t>(ranks));
  run_ranks(ranks, [&](Communicator& communicator) {
    at::Tensor tensor = value(communicator.rank()).clone();
    communicator.all_reduce(tensor, op).wait();
    results[static_cast<size_t>(communicator.rank())] = tensor;
  });
  for (const at::Tensor& result : results) {
    EXPECT_TRUE(same_bits(result, results[0]));
  }
  return results[0];
}

std::vector<ReduceOp> every_average(int ranks) {
  double split = 1.0;  // a power of two near the root
  while (ranks / split > split * 2) {
    split *= 2.0;
  }
  return {ReduceOp::avg(), ReduceOp::avg().predivide(split),
          ReduceOp::avg().predivide(static_cast<double>(ranks))};
}

TEST(WireAverages, AveragesOfManyRanksStayInRange) {
  for (const int ranks : {2, 8}) {
    const auto nine_thousand = [](int) { return at::full({100}, 9000.0, at::kHalf); };
    for (const ReduceOp op : every_average(ranks)) {
      EXPECT_TRUE(at::equal(averaged(ranks, op, nine_thousand), nine_thousand(0)));
    }
  }
  const auto sum =
      averaged(8, ReduceOp::sum(), [](int) { return at::full({3}, 9000.0, at::kHalf); });
  EXPECT_TRUE(at::isinf(sum).all().item<bool>());
}

TEST(WireAverages, AnyNumberOfRanksAveragesWithinHalfAUlpAndTheSameBits) {
  for (const int ranks : {3, 6, 7}) {
    for (const auto dtype : {at::kHalf, at::kBFloat16}) {
      std::vector<at::Tensor> values;
      auto exact = at::zeros({5000}, at::kDouble);
      for (int rank = 0; rank < ranks; ++rank) {
        values.push_back((at::randn({5000}) * at::pow(10.0, at::linspace(-3, 3, 5000))).to(dtype));
        exact += values.back().to(at::kDouble);
      }
      exact /= ranks;
      // Half a unit of the last place, and what rounding in fp32 adds where terms cancel.
      const double place = dtype == at::kHalf ? 0x1p-11 : 0x1p-8;
      auto magnitude = at::zeros({5000}, at::kDouble);
      for (const at::Tensor& value : values) {
        magnitude += value.to(at::kDouble).abs();
      }
      const auto bound = exact.abs() * place + magnitude * 0x1p-22 + 0x1p-25;
      for (const ReduceOp op : every_average(ranks)) {
        const auto result =
            averaged(ranks, op, [&](int rank) { return values[static_cast<size_t>(rank)]; });
        EXPECT_LE(((result.to(at::kDouble) - exact).abs() / bound).max().item<double>(), 1.0)
            << ranks << " " << dtype << " predivide " << op.predivide_factor();
      }
    }
  }
}

TEST(WireAverages, NaiveFp16SumsOverflowAndNaivePredivisionUnderflows) {
  at::Tensor sum = at::zeros({}, at::kHalf);
  at::Tensor divided = at::zeros({}, at::kHalf);
  for (int rank = 0; rank < 8; ++rank) {
    sum += at::full({}, 9000.0, at::kHalf);
    divided += at::full({}, 3e-7, at::kHalf) / 8;
  }
  EXPECT_TRUE(at::isinf(sum).item<bool>());
  EXPECT_GT(std::abs(divided.item<double>() - 3e-7) / 3e-7, 0.5);
  for (const ReduceOp op : every_average(8)) {
    const auto tiny = averaged(8, op, [](int) { return at::full({9}, 3e-7, at::kHalf); });
    EXPECT_TRUE(at::equal(tiny, at::full({9}, 3e-7, at::kHalf))) << op.predivide_factor();
  }
}

TEST(WireAverages, AHalfRoundedInverseOfTheWorldSizeIsNotADivision) {
  for (const int ranks : {1, 3, 6, 7}) {
    const at::Tensor values = at::arange(1, 2049).to(at::kHalf);  // the average of themselves
    at::Tensor naive = at::zeros({2048}, at::kHalf);
    const auto inverse = at::full({}, 1.0 / ranks, at::kHalf);
    for (int rank = 0; rank < ranks; ++rank) {
      naive += values * inverse;
    }
    EXPECT_EQ(at::equal(naive, values), ranks == 1) << ranks;
    EXPECT_TRUE(at::equal(averaged(ranks, ReduceOp::avg(), [&](int) { return values; }), values))
        << ranks;
  }
}

}  // namespace
}  // namespace lockstep
