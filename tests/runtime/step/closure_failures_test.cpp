// What one rank throws in a step whose closure has collectives is the same Error on every rank, and
// the next step is as if there had been no such step.
#include "error_of.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

#include <lockstep/amp/sync_batch_norm.h>
#include <lockstep/collectives/exceptions.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>

#include <functional>
#include <new>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace lockstep {
namespace {

enum class Fault { exception, bad_alloc };
enum class Place { closure, hook, loader, backward };
enum class Call { sync_batch_norm, on_split, on_communicator, on_control };

void fail(Fault fault) {
  if (fault == Fault::bad_alloc) {
    throw std::bad_alloc();
  }
  throw Error("sample 17 is damaged", ExitCode::data);
}

/// Its first sample cannot be read if `fault` is set.
struct Samples {
  std::optional<Fault> fault;
  size_t size() const { return static_cast<size_t>(4 * runtime().size()); }
  at::Tensor get(size_t index) const {
    if (fault) {
      fail(*fault);
    }
    return at::full({}, static_cast<double>(index), at::kLong);
  }
};

/// The identity, whose backward throws.
struct FailsInBackward : torch::autograd::Function<FailsInBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            int64_t fault) {
    context->saved_data["fault"] = fault;
    return x.clone();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list) {
    fail(static_cast<Fault>(context->saved_data["fault"].toInt()));
    return {};
  }
};

/// A net with a collective in forward and one in backward.
struct Net {
  explicit Net(Call call) : layers(torch::nn::Linear(4, 8), torch::nn::BatchNorm1d(8)), last(8, 2) {
    const at::NoGradGuard no_grad;
    for (const at::Tensor& weight : model()->parameters()) {
      weight.copy_(drawn(weight.sizes(), static_cast<uint64_t>(weight.numel())) * 0.3);
    }
    if (call == Call::sync_batch_norm) {
      convert_sync_batchnorm(model(), runtime().communicator());
    } else {
      layers[1]->eval();  // the same values on any rank
      ranks = call == Call::on_split          ? runtime().communicator().split(0)
              : call == Call::on_communicator ? runtime().communicator()
                                              : runtime().control();
    }
  }

  torch::nn::Sequential model() {
    if (!whole) {
      whole = torch::nn::Sequential(layers, last);
    }
    return whole;
  }

  at::Tensor loss(const Batch& batch, std::optional<Fault> here, Place place) {
    if (here && place == Place::closure) {
      fail(*here);
    }
    at::Tensor hidden = layers->forward(batch.x);
    if (ranks) {
      at::Tensor all = at::empty({hidden.size(0) * ranks->size(), hidden.size(1)});
      ranks->all_gather(all, hidden.detach()).wait();
      hidden = hidden - all.mean(0);
      hidden.register_hook([ranks = *ranks](const at::Tensor& gradient) {
        const at::Tensor sum = gradient.clone();
        ranks.all_reduce(sum).wait();
        return sum;
      });
    }
    at::Tensor result = at::tanh(hidden);
    if (here && place == Place::backward) {
      result = FailsInBackward::apply(result, static_cast<int64_t>(*here));
    }
    if (here && place == Place::hook) {
      result.register_hook([here](const at::Tensor&) { fail(*here); });
    }
    return (last->forward(result) - batch.y).square().mean();
  }

  torch::nn::Sequential layers;
  torch::nn::Linear last;
  torch::nn::Sequential whole = nullptr;
  std::optional<Communicator> ranks;
};

/// The Error of step(), on every rank the same.
std::optional<Error> error_of_step(Trainer& trainer, const std::function<Loss()>& closure) {
  std::optional<Error> found;
  try {
    trainer.step(closure);
  } catch (const Error& error) {
    found = error;
  }
  const std::string text = found ? found->what() : "";
  EXPECT_THAT(runtime().control().all_gather_bytes(text), Each(text));
  return found;
}

/// The masters after two updates, between which `failing` fails in a step.
at::Tensor trained(Call call, std::optional<int> failing = std::nullopt,
                   Fault fault = Fault::exception, Place place = Place::closure,
                   bool before_first_update = false) {
  Net net(call);
  Trainer trainer(runtime(), net.model(), SGD(0.1).momentum(0.9));
  const auto good = [&](int64_t step) {
    trainer.step(
        [&] { return net.loss(mlp_batch(step, runtime().rank()), std::nullopt, Place::closure); });
  };
  if (!before_first_update) {
    good(0);
  }
  if (failing) {
    const auto here = runtime().rank() == *failing ? std::optional(fault) : std::nullopt;
    auto loader = runtime().loader(Samples{place == Place::loader ? here : std::nullopt},
                                   LoaderOptions().batch_size(4).compare_ranks(false));
    const auto error = error_of_step(trainer, [&] {
      for (const auto& batch : loader) {
        std::ignore = batch;
      }
      return net.loss(mlp_batch(9, runtime().rank()), here, place);
    });
    EXPECT_TRUE(error.has_value());
    const bool memory = fault == Fault::bad_alloc;
    EXPECT_EQ(error->code(), memory ? ExitCode::out_of_memory : ExitCode::data);
    EXPECT_THAT(error->what(), StartsWith(c10::str("rank ", *failing, ": ",
                                                   memory ? "out of memory in micro-batch"
                                                          : "sample 17 is damaged")));
  }
  if (before_first_update) {
    good(0);
  }
  good(1);
  EXPECT_TRUE(trainer.replicas_agree());
  return flat_masters(trainer);
}

class ClosureFailures : public ::testing::TestWithParam<Call> {};
INSTANTIATE_TEST_SUITE_P(, ClosureFailures,
                         ::testing::Values(Call::sync_batch_norm, Call::on_split,
                                           Call::on_communicator, Call::on_control),
                         [](const auto& info) {
                           const std::vector<const char*> names = {
                               "SyncBatchNorm", "OnASplitCommunicator", "OnTheCommunicator",
                               "OnControl"};
                           return names[static_cast<size_t>(info.param)];
                         });

TEST_P(ClosureFailures, OfAnyRankReachAllRanksAndLeaveNoTrace) {
  const at::Tensor expected = trained(GetParam());
  for (const Fault fault : {Fault::exception, Fault::bad_alloc}) {
    for (const Place place : {Place::closure, Place::hook, Place::loader, Place::backward}) {
      for (int failing = 0; failing < runtime().size(); ++failing) {
        SCOPED_TRACE(c10::str("fault ", static_cast<int>(fault), ", place ",
                              static_cast<int>(place), ", rank ", failing));
        EXPECT_TRUE(at::equal(trained(GetParam(), failing, fault, place), expected));
      }
    }
  }
}

TEST_P(ClosureFailures, BeforeTheFirstUpdateReachAllRanks) {
  const at::Tensor expected = trained(GetParam());
  for (const Place place : {Place::closure, Place::backward}) {
    EXPECT_TRUE(at::equal(trained(GetParam(), 1, Fault::exception, place, true), expected));
  }
}

/// A closure that only rank 1 fails in, before a collective on `ranks`.
Loss loss_with_collective(Mlp& model, const Communicator& ranks, int64_t step, bool fails) {
  if (fails && runtime().rank() == 1) {
    fail(Fault::exception);
  }
  ranks.barrier().wait();
  return scaled_loss(model, step);
}

TEST(FailuresInASchedule, OfRanksInOtherMicroBatchesMeet) {
  const auto model = std::make_shared<Mlp>();
  const Communicator ranks = runtime().communicator().split(0);
  Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions().accumulate(3));
  for (int64_t failing = 0; failing < 3; ++failing) {
    const at::Tensor before = flat_masters(trainer);
    const std::string message = error_of([&] {
      for (int64_t k = 0; k < 3; ++k) {
        trainer.step([&]() -> Loss {
          if (k == failing && runtime().rank() == 1) {
            fail(Fault::exception);
          }
          if (k == 2) {
            ranks.barrier().wait();
          }
          return scaled_loss(*model, k);
        });
      }
    });
    EXPECT_EQ(message, "rank 1: sample 17 is damaged");
    EXPECT_TRUE(at::equal(flat_masters(trainer), before));
    for (int64_t k = 0; k < 3; ++k) {
      trainer.step([&] { return loss_with_collective(*model, ranks, k, false); });
    }
    EXPECT_FALSE(at::equal(flat_masters(trainer), before));
    EXPECT_TRUE(trainer.replicas_agree());
  }
}

TEST(FailuresInASchedule, ReachACallOfTheProgramBetweenMicroBatches) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions().accumulate(2));
  bool heard_outside = false;
  const std::string message = error_of([&] {
    trainer.step([&]() -> Loss {
      if (runtime().rank() == 1) {
        fail(Fault::exception);
      }
      return scaled_loss(*model, 0);
    });
    try {
      runtime().control().barrier().wait();
    } catch (const PeerStepFailed& error) {
      heard_outside = error.code() == ExitCode::data;
    }
    trainer.step([&] { return scaled_loss(*model, 1); });
  });
  EXPECT_EQ(message, "rank 1: sample 17 is damaged");
  EXPECT_EQ(heard_outside, runtime().rank() != 1);
  for (int64_t k = 0; k < 2; ++k) {
    trainer.step([&] { return scaled_loss(*model, k); });
  }
  EXPECT_EQ(trainer.updates(), 1);
  EXPECT_TRUE(trainer.replicas_agree());
}

TEST(FailuresInASchedule, OfOneOfTwoTrainersReachThePeersInTheOther) {
  const auto first = std::make_shared<Mlp>();
  const auto second = std::make_shared<Mlp>();
  Trainer trainer(runtime(), first, SGD(0.1), TrainerOptions().accumulate(2));
  Trainer other(runtime(), second, SGD(0.1));
  const std::string message = error_of([&] {
    trainer.step([&]() -> Loss {
      if (runtime().rank() == 1) {
        fail(Fault::exception);
      }
      return scaled_loss(*first, 0);
    });
    other.step([&] { return scaled_loss(*second, 0); });
  });
  EXPECT_EQ(message, "rank 1: sample 17 is damaged");
  EXPECT_EQ(other.updates(), 0);
  for (int64_t k = 0; k < 2; ++k) {
    trainer.step([&] { return scaled_loss(*first, k); });
  }
  other.step([&] { return scaled_loss(*second, 0); });
  EXPECT_EQ(trainer.updates(), 1);
  EXPECT_EQ(other.updates(), 1);
  EXPECT_TRUE(trainer.replicas_agree());
  EXPECT_TRUE(other.replicas_agree());
}

TEST(FailuresInASchedule, AreSharedThoughAPeerSwallowsTheExceptionOfItsCollective) {
  const auto model = std::make_shared<Mlp>();
  const Communicator ranks = runtime().communicator().split(0);
  Trainer trainer(runtime(), model, SGD(0.1));
  for (const bool rethrows : {false, true}) {
    const auto error = error_of_step(trainer, [&] {
      try {
        return loss_with_collective(*model, ranks, 0, true);
      } catch (const PeerStepFailed&) {
        if (rethrows) {
          throw std::runtime_error("the metric could not be computed");
        }
      }
      return scaled_loss(*model, 0);
    });
    ASSERT_TRUE(error.has_value());
    EXPECT_STREQ(error->what(), "rank 1: sample 17 is damaged");
  }
  trainer.step([&] { return loss_with_collective(*model, ranks, 0, false); });
  EXPECT_TRUE(trainer.replicas_agree());
}

TEST(FailuresInASchedule, OfSeveralRanksAreAllQuoted) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1));
  const auto error = error_of_step(
      trainer, [&]() -> Loss { throw Error(c10::str("no file ", runtime().rank())); });
  ASSERT_TRUE(error.has_value());
  for (int rank = 0; rank < runtime().size(); ++rank) {
    EXPECT_THAT(error->what(), HasSubstr(c10::str("rank ", rank, ": no file ", rank)));
  }
}

}  // namespace
}  // namespace lockstep
