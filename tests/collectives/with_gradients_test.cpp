#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/with_gradients.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "error_of.h"
#include "test_names.h"
#include "thread_ranks.h"
#include "verbs.h"

namespace lockstep {
namespace {

/// A function of all ranks: the loss of this one.
using LossOf = std::function<at::Tensor(const Communicator& ranks, const at::Tensor& x)>;

/// Weights that differ by rank and element, so that no two outputs count alike.
at::Tensor weighted_sum(const Communicator& ranks, const at::Tensor& y) {
  const at::Tensor weights =
      at::sin(at::arange(y.numel(), at::kDouble) * 1.7 + ranks.rank()).view(y.sizes());
  return (y.pow(3) * weights).sum();
}

double sum_over_ranks(const Communicator& ranks, const at::Tensor& value) {
  at::Tensor sum = value.detach().clone();
  ranks.all_reduce(sum).wait();
  return sum.item<double>();
}

/// The gradient of the sum of all ranks' losses, by differences.
at::Tensor by_differences(const Communicator& ranks, const at::Tensor& x, int64_t most_elements,
                          const std::function<at::Tensor(const at::Tensor&)>& loss) {
  constexpr double kStep = 1e-5;
  at::Tensor gradient = at::zeros_like(x);
  for (int owner = 0; owner < ranks.size(); ++owner) {
    for (int64_t element = 0; element < most_elements; ++element) {
      const bool is_mine = ranks.rank() == owner && element < x.numel();
      double difference = 0.0;
      for (const double sign : {1.0, -1.0}) {
        at::Tensor moved = x.detach().clone();
        if (is_mine) {
          moved.view(-1)[element] += sign * kStep;
        }
        difference += sign * sum_over_ranks(ranks, loss(moved));
      }
      if (is_mine) {
        gradient.view(-1)[element] = difference / (2 * kStep);
      }
    }
  }
  return gradient;
}

/// First and second derivatives of `loss` on ranks with `rows(rank)` rows each.
void expect_right_gradients(const std::function<int64_t(int rank)>& rows, const LossOf& loss) {
  run_ranks(3, [&](Communicator& ranks) {
    int64_t most = 0;
    for (int rank = 0; rank < ranks.size(); ++rank) {
      most = std::max(most, rows(rank));
    }
    const at::Tensor x =
        at::sin(at::arange(rows(ranks.rank()) * 2, at::kDouble) * 0.9 + ranks.rank())
            .view({rows(ranks.rank()), 2})
            .requires_grad_(true);
    const auto first = [&](const at::Tensor& at_x, bool again) {
      return torch::autograd::grad({loss(ranks, at_x)}, {at_x}, {}, /*retain_graph=*/std::nullopt,
                                   /*create_graph=*/again)[0];
    };
    const auto value = [&](const at::Tensor& at_x) { return loss(ranks, at_x); };
    EXPECT_TRUE(
        at::allclose(first(x, false), by_differences(ranks, x, 2 * most, value), 1e-6, 1e-7))
        << "rank " << ranks.rank();

    const auto of_gradient = [&](const at::Tensor& at_x) {
      return weighted_sum(ranks, first(at_x, true));
    };
    const at::Tensor second = torch::autograd::grad({of_gradient(x)}, {x})[0];
    const auto again = [&](const at::Tensor& moved) {
      return of_gradient(moved.requires_grad_(true)).detach();
    };
    EXPECT_TRUE(at::allclose(second, by_differences(ranks, x, 2 * most, again), 1e-5, 1e-6))
        << "rank " << ranks.rank();
  });
}

int64_t two_rows(int) {
  return 2;
}

TEST(WithGradients, OfAllGatherAreThoseOfTheSumOfLosses) {
  const LossOf loss = [](const Communicator& ranks, const at::Tensor& x) {
    return weighted_sum(ranks, all_gather_with_gradients(ranks, x));
  };
  expect_right_gradients(two_rows, loss);
  expect_right_gradients([](int rank) { return rank + 1; }, loss);
  expect_right_gradients([](int rank) { return rank == 1 ? 0 : 2; }, loss);
}

TEST(WithGradients, OfReduceScatterAreThoseOfTheSumOfLosses) {
  for (const ReduceOp op : {ReduceOp::sum(), ReduceOp::avg()}) {
    expect_right_gradients([](int) { return 3; },
                           [op](const Communicator& ranks, const at::Tensor& x) {
                             return weighted_sum(ranks,
                                                 reduce_scatter_with_gradients(ranks, x, op));
                           });
  }
}

TEST(WithGradients, OfAllReduceAreThoseOfTheSumOfLosses) {
  for (const ReduceOp op : {ReduceOp::sum(), ReduceOp::avg()}) {
    expect_right_gradients(two_rows, [op](const Communicator& ranks, const at::Tensor& x) {
      return weighted_sum(ranks, all_reduce_with_gradients(ranks, x, op));
    });
  }
}

TEST(WithGradients, OfBroadcastAreThoseOfTheSumOfLosses) {
  for (const int root : {0, 2}) {
    expect_right_gradients(two_rows, [root](const Communicator& ranks, const at::Tensor& x) {
      return weighted_sum(ranks, broadcast_with_gradients(ranks, x, root));
    });
  }
}

TEST(WithGradients, OfOneRankAreThoseOfTheInput) {
  const Communicator alone = Communicator::solo();
  const at::Tensor x = at::ones({4, 2}).requires_grad_(true);
  for (const at::Tensor& y :
       {all_gather_with_gradients(alone, x), reduce_scatter_with_gradients(alone, x),
        all_reduce_with_gradients(alone, x), broadcast_with_gradients(alone, x)}) {
    EXPECT_TRUE(at::equal(y, x));
    EXPECT_TRUE(at::equal(torch::autograd::grad({(y * 3).sum()}, {x})[0], at::full({4, 2}, 3.0)));
  }
}

TEST(WithGradients, RanksWhoseInputNeedsNoneTakePartInBackward) {
  run_ranks(3, [](Communicator& ranks) {
    const bool is_first = ranks.rank() == 0;
    const at::Tensor x = at::ones({2, 2}).requires_grad_(is_first);
    const at::Tensor loss = all_gather_with_gradients(ranks, x).sum() +
                            all_reduce_with_gradients(ranks, x).sum() +
                            broadcast_with_gradients(ranks, x).sum() +
                            reduce_scatter_with_gradients(ranks, x.repeat({3, 1})).sum();
    loss.backward();
    EXPECT_EQ(x.grad().defined(), is_first);
    if (is_first) {
      EXPECT_TRUE(at::equal(x.grad(), at::full({2, 2}, 3.0 + 3.0 + 3.0 + 3.0)));
    }
    const at::NoGradGuard no_grad;
    EXPECT_FALSE(all_gather_with_gradients(ranks, x).requires_grad());
  });
}

TEST(WithGradients, TakeAnyStridesAndKeepTheDtype) {
  run_ranks(2, [](Communicator& ranks) {
    for (const at::ScalarType dtype : {at::kFloat, at::kHalf, at::kBFloat16}) {
      const at::Tensor x = (at::arange(6, dtype) + ranks.rank()).view({2, 3});
      EXPECT_TRUE(at::equal(all_gather_with_gradients(ranks, x.t()),
                            ranks.all_gather_rows(x.t().contiguous())));
      EXPECT_TRUE(at::equal(all_reduce_with_gradients(ranks, x.t(), ReduceOp::avg()),
                            (at::arange(6, dtype) + 0.5).view({2, 3}).t()));
      EXPECT_EQ(broadcast_with_gradients(ranks, x.t()).scalar_type(), dtype);
    }
  });
}

TEST(WithGradients, OfWrongArgumentsAreRefused) {
  const Communicator alone = Communicator::solo();
  const at::Tensor x = at::ones({3, 2});
  EXPECT_THAT(error_of([&] { all_reduce_with_gradients(alone, x, ReduceOp::max()); }),
              HasSubstr("all_reduce_with_gradients: the operation must be sum or avg"));
  EXPECT_THAT(error_of([&] { all_gather_with_gradients(alone, at::ones({2}, at::kLong)); }),
              HasSubstr("only floating dtypes have gradients"));
  EXPECT_THAT(error_of([&] { all_gather_with_gradients(alone, at::ones({})); }),
              HasSubstr("at least one dimension"));
  run_ranks(2, [&](Communicator& ranks) {
    EXPECT_THAT(error_of([&] { reduce_scatter_with_gradients(ranks, x); }),
                HasSubstr("3 rows cannot be shared equally among 2 ranks"));
  });
}

TEST(PlainCollectives, RefuseATensorOfAutogradsGraph) {
  run_ranks(2, [](Communicator& ranks) {
    const at::Tensor leaf = at::ones({4}).requires_grad_(true);
    const at::Tensor result = leaf * 2;
    for (const at::Tensor& x : {leaf, result}) {
      const std::vector<std::pair<std::string, std::function<void(const at::Tensor&)>>> calls = {
          {"all_reduce", [&](const at::Tensor& each) { ranks.all_reduce(each).wait(); }},
          {"reduce_scatter",
           [&](const at::Tensor& each) { ranks.reduce_scatter(at::empty({2}), each).wait(); }},
          {"all_gather",
           [&](const at::Tensor& each) { ranks.all_gather(at::empty({8}), each).wait(); }},
          {"broadcast", [&](const at::Tensor& each) { ranks.broadcast(each).wait(); }}};
      for (const auto& [name, call] : calls) {
        EXPECT_THAT(error_of([&, &call = call] { call(x); }),
                    HasSubstr("call lockstep::" + name + "_with_gradients()"));
        call(x.detach().clone());
        const at::NoGradGuard no_grad;
        call(x.clone());
      }
    }
  });
}

TEST(PlainCollectives, GatherRowsOfDifferentNumbers) {
  run_ranks(3, [](Communicator& ranks) {
    for (const at::ScalarType dtype : {at::kFloat, at::kLong, at::kBool}) {
      const auto rows_of = [&](int rank) {
        return at::full({rank == 1 ? 0 : rank + 1, 2, 3}, rank + 1, at::kLong).to(dtype);
      };
      EXPECT_TRUE(at::equal(ranks.all_gather_rows(rows_of(ranks.rank())),
                            at::cat({rows_of(0), rows_of(1), rows_of(2)})));
    }
    EXPECT_EQ(ranks.all_gather_rows(at::empty({0, 5})).sizes(), at::IntArrayRef({0, 5}));
    EXPECT_EQ(ranks.all_gather_numbers(10 * ranks.rank()), (std::vector<int64_t>{0, 10, 20}));
    EXPECT_THAT(error_of([&] { std::ignore = ranks.all_gather_rows(at::ones({})); }),
                HasSubstr("at least one dimension"));
  });
}

TEST(PlainCollectives, GatherAndBroadcastBytes) {
  run_ranks(3, [](Communicator& ranks) {
    const std::string own(static_cast<size_t>(ranks.rank()) * 3, static_cast<char>(ranks.rank()));
    for (int root = 0; root < ranks.size(); ++root) {
      const std::vector<std::string> all = ranks.gather_bytes(own, root);
      EXPECT_EQ(all.size(), ranks.rank() == root ? 3U : 0U);
      for (size_t rank = 0; rank < all.size(); ++rank) {
        EXPECT_EQ(all[rank], std::string(rank * 3, static_cast<char>(rank)));
      }
      const auto length = static_cast<size_t>(root) * 3;
      EXPECT_EQ(ranks.broadcast_bytes(own, root), std::string(length, static_cast<char>(root)));
    }
    EXPECT_THAT(error_of([&] { std::ignore = ranks.broadcast_bytes(own, 3); }),
                HasSubstr("root is 3, expected 0 to 2"));
    EXPECT_THAT(error_of([&] { std::ignore = ranks.gather_bytes(own, -1); }),
                HasSubstr("root is -1, expected 0 to 2"));
  });
}

}  // namespace
}  // namespace lockstep
