// Uneven shares: Loss::sum with a global denominator, and ranks that run out of data.
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

/// Rank r has r * 2 + 1 rows of step `step`; rank 2 has none.
testing::Batch uneven_batch(int64_t step, int rank) {
  const int64_t rows = rank == 2 ? 0 : rank * 2 + 1;
  const auto seed = static_cast<uint64_t>(step * 64 + rank);
  return {drawn({rows, 4}, seed), drawn({rows, 2}, seed + 1'000'000)};
}

Loss sum_of_squares(Mlp& model, const testing::Batch& batch) {
  return Loss::sum((model.forward(batch.x) - batch.y).square().sum(),
                   static_cast<double>(batch.y.numel()));
}

/// A copy of `model` that plain gradient descent moves.
class PlainDescent {
 public:
  explicit PlainDescent(const Mlp& model) { testing::copy_state(model, model_); }
  Mlp& model() { return model_; }
  void step(const at::Tensor& loss) {
    testing::clear_gradients(model_);
    loss.backward();
    testing::descend(model_, 0.1);
  }
  at::Tensor flat() const { return testing::flat(model_.parameters()); }

 private:
  Mlp model_;
};

TEST(StepRules, LossSumWithUnevenWeightsEqualsTheJoinedBatch) {
  for (const int64_t accumulate : {1, 3}) {
    const auto model = std::make_shared<Mlp>();
    Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions().accumulate(accumulate));
    PlainDescent plain(*model);
    for (int64_t update = 0; update < 30; ++update) {
      at::Tensor total;
      double weight = 0;
      for (int64_t k = 0; k < accumulate; ++k) {
        const int64_t step = update * accumulate + k;
        trainer.step([&] { return sum_of_squares(*model, uneven_batch(step, runtime().rank())); });
        for (int rank = 0; rank < runtime().size(); ++rank) {
          const Loss part = sum_of_squares(plain.model(), uneven_batch(step, rank));
          total = total.defined() ? total + part.tensor() : part.tensor();
          weight += part.weight();
        }
      }
      plain.step(total / weight);
    }
    EXPECT_LT(relative_distance(flat_masters(trainer), plain.flat()), 1e-6);
    EXPECT_TRUE(trainer.replicas_agree());
  }
}

TEST(StepRules, ReportedLossOfASumIsItsMean) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1));
  const testing::Batch batch = testing::mlp_batch(0, runtime().rank());
  const double mean = model->loss(batch.x, batch.y).item<double>();
  const auto report = trainer.step([&] { return sum_of_squares(*model, batch); });
  EXPECT_NEAR(report.loss(), mean, 1e-6 * mean);
}

TEST(StepRules, RanksThatRunOutOfDataGoOnWithoutIt) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions().uneven_data(true));
  PlainDescent plain(*model);
  const auto batches_of = [](int rank) { return 2 * (rank + 1); };
  int64_t step = 0;
  for (bool out_of_data = false; !out_of_data; ++step) {
    ASSERT_LT(step, 100);
    const bool has_data = step < batches_of(runtime().rank());
    const auto report = has_data ? trainer.step([&] { return testing::scaled_loss(*model, step); })
                                 : trainer.step_without_data();
    out_of_data = report.all_out_of_data();
    at::Tensor total;
    int with_data = 0;
    for (int rank = 0; rank < runtime().size(); ++rank) {
      if (step < batches_of(rank)) {
        const auto batch = testing::mlp_batch(step, rank);
        const at::Tensor loss = plain.model().loss(batch.x, batch.y);
        total = total.defined() ? total + loss : loss;
        ++with_data;
      }
    }
    EXPECT_EQ(out_of_data, with_data == 0);
    if (with_data > 0) {
      plain.step(total / with_data);
    }
  }
  EXPECT_EQ(step, batches_of(runtime().size() - 1) + 1);
  EXPECT_EQ(trainer.updates(), batches_of(runtime().size() - 1));
  EXPECT_LT(relative_distance(flat_masters(trainer), plain.flat()), 1e-6);
  EXPECT_TRUE(trainer.replicas_agree());
}

TEST(StepRules, NothingMovesWhenNobodyCounted) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, AdamW(0.1));
  const at::Tensor before = flat_masters(trainer);
  trainer.step([&] {
    const Loss loss = sum_of_squares(*model, testing::mlp_batch(0, runtime().rank()));
    return Loss::sum(loss.tensor(), 0.0);
  });
  EXPECT_EQ(trainer.updates(), 0);
  EXPECT_EQ(trainer.scaler_state().iteration, 0);
  EXPECT_TRUE(at::equal(flat_masters(trainer), before));
}

}  // namespace
}  // namespace lockstep
