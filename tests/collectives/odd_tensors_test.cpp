// Tensors whose memory is not their values, in each collective.
#include "odd_tensors.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <lockstep/collectives/exceptions.h>

#include "test_names.h"
#include "thread_ranks.h"

namespace lockstep {
namespace {

void on_ranks(int size, const std::function<void(Communicator&)>& body) {
  if (size == 1) {
    Communicator alone = Communicator::solo();
    body(alone);
  } else {
    testing::run_ranks(size, body);
  }
}

at::Tensor values_of(const LazyForm& form, int rank) {
  const at::Tensor real = at::arange(1, 5, at::kFloat) + 10 * rank;
  return form.is_complex ? at::complex(real, real * 2) : real;
}

class OddTensors : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, OddTensors, ::testing::Values(1, 2, 3),
                         [](const auto& info) { return "np" + std::to_string(info.param); });

TEST_P(OddTensors, LazySignsAreAppliedToWhatIsBroadcastAndGathered) {
  for (const LazyForm& form : testing::lazy_forms()) {
    SCOPED_TRACE(form.name);
    on_ranks(GetParam(), [&](Communicator& ranks) {
      const at::Tensor mine = form.of(values_of(form, ranks.rank()));
      const int root = ranks.size() - 1;
      // Only the root's tensor is lazy, then only those of the others.
      const at::Tensor given = ranks.rank() == root ? mine.clone() : values_of(form, 7);
      const at::Tensor from_lazy = ranks.rank() == root ? mine : given;
      ranks.broadcast(from_lazy, root).wait();
      EXPECT_TRUE(at::equal(from_lazy, values_of(form, root)));
      const at::Tensor to_lazy =
          ranks.rank() == root ? values_of(form, root) : form.of(values_of(form, 7));
      ranks.broadcast(to_lazy, root).wait();
      EXPECT_TRUE(at::equal(to_lazy, values_of(form, root)));

      const at::Tensor input = form.of(values_of(form, ranks.rank()));
      const at::Tensor all = form.of(at::zeros({ranks.size() * 4}, input.options()));
      ranks.all_gather(all, input).wait();
      for (int rank = 0; rank < ranks.size(); ++rank) {
        EXPECT_TRUE(at::equal(all.narrow(0, rank * 4, 4), values_of(form, rank)));
      }
    });
  }
}

TEST_P(OddTensors, LazyMinusIsAppliedToWhatIsReduced) {
  const LazyForm minus = testing::lazy_forms().front();
  on_ranks(GetParam(), [&](Communicator& ranks) {
    const int size = ranks.size();
    const at::Tensor sum = values_of(minus, 0) * size + 5 * size * (size - 1);
    // On some ranks the tensor is lazy, on others it is not.
    const auto mine = [&] {
      const at::Tensor values = values_of(minus, ranks.rank());
      return ranks.rank() % 2 == 0 ? minus.of(values) : values;
    };
    const at::Tensor reduced = mine();
    ranks.all_reduce(reduced).wait();
    EXPECT_TRUE(at::equal(reduced, sum));
    const at::Tensor most = mine();
    Work work = ranks.all_reduce(most, ReduceOp::max());
    while (!work.test()) {
    }
    EXPECT_TRUE(at::equal(most, values_of(minus, size - 1)));

    const at::Tensor input = minus.of(values_of(minus, ranks.rank()).repeat({size}));
    const at::Tensor share = minus.of(at::zeros({4}));
    ranks.reduce_scatter(share, input).wait();
    EXPECT_TRUE(at::equal(share, sum));
  });
}

TEST(OddTensors, AViewWithAMinusPassesTheResultOnToItsBase) {
  Communicator alone = Communicator::solo();
  const at::Tensor base = at::complex(at::ones({1}), at::full({1}, 2.0));
  const at::Tensor imaginary = at::imag(at::conj(base));
  alone.all_reduce(imaginary).wait();
  EXPECT_EQ(imaginary.item<float>(), -2.0F);
  EXPECT_EQ(at::imag(base).item<float>(), 2.0F);
}

TEST_P(OddTensors, OfOtherMemoryThanTheirValuesAreRefusedByName) {
  for (const OddTensor& odd : odd_tensors()) {
    SCOPED_TRACE(odd.word);
    const at::Tensor plain = at::zeros({16 * GetParam()});
    const std::vector<std::pair<std::string, std::function<Work(Communicator&)>>> calls = {
        {"all_reduce #1: tensor", [&](Communicator& c) { return c.all_reduce(odd.tensor); }},
        {"broadcast #1: tensor", [&](Communicator& c) { return c.broadcast(odd.tensor); }},
        {"all_gather #1: input", [&](Communicator& c) { return c.all_gather(plain, odd.tensor); }},
        {"all_gather #1: output", [&](Communicator& c) { return c.all_gather(odd.tensor, plain); }},
        {"reduce_scatter #1: input",
         [&](Communicator& c) { return c.reduce_scatter(plain, odd.tensor); }},
        {"reduce_scatter #1: output",
         [&](Communicator& c) { return c.reduce_scatter(odd.tensor, plain); }}};
    for (const auto& [where, call] : calls) {
      const auto found =
          outcomes(GetParam(), [&, &call = call](Communicator& ranks) { call(ranks).wait(); });
      for (const RankOutcome& rank : found) {
        EXPECT_EQ(rank.kind, RankOutcome::Kind::error);
        EXPECT_THAT(rank.message, AllOf(HasSubstr(where), HasSubstr(odd.word)));
      }
    }
  }
}

TEST_P(OddTensors, LazyZerosAreReadAndNotWritten) {
  on_ranks(GetParam(), [&](Communicator& ranks) {
    const at::Tensor zeros = at::_efficientzerotensor({4}, at::TensorOptions(at::kFloat));
    const at::Tensor all = at::ones({ranks.size() * 4});
    ranks.all_gather(all, zeros).wait();
    EXPECT_TRUE(at::equal(all, at::zeros_like(all)));
    const auto refused = [](const std::function<void()>& call) {
      try {
        call();
        ADD_FAILURE() << "went through";
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("lazy zeros"));
      }
    };
    refused([&] { ranks.all_reduce(zeros).wait(); });
    refused([&] { ranks.broadcast(zeros).wait(); });
    refused([&] { ranks.all_gather(zeros, at::ones({1})).wait(); });
  });
}

TEST_P(OddTensors, MadeUnderInferenceModeAreServed) {
  on_ranks(GetParam(), [&](Communicator& ranks) {
    at::Tensor outputs;
    {
      const c10::InferenceMode guard;
      outputs = at::ones({4});
    }
    ranks.all_reduce(outputs).wait();
    EXPECT_EQ(outputs.sum().item<double>(), 4.0 * ranks.size());
  });
}

}  // namespace
}  // namespace lockstep
