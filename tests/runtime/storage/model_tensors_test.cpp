// Tensors of a model whose memory is not their values, or that have none.
#include <ATen/ATen.h>
#include <c10/core/InferenceMode.h>
#include <lockstep/runtime/data_parallel.h>

#include "error_of.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

struct Odd {
  const char* word;  // of the refusal
  at::Tensor tensor;
};

std::vector<Odd> odd_tensors() {
  at::Tensor inference;
  {
    const c10::InferenceMode guard;
    inference = at::ones({4});
  }
  return {
      {"Sparse", at::eye(4).to_sparse()},
      {"SparseCsr", at::eye(4).to_sparse_csr()},
      {"Mkldnn", at::ones({4, 4}).to_mkldnn()},
      {"quantised", at::quantize_per_tensor(at::ones({4}), 0.1, 0, at::kQInt8)},
      {"meta device", at::empty({4}, at::TensorOptions().device(at::kMeta))},
      {"InferenceMode", inference},
      {"nested", at::_nested_tensor_from_tensor_list({at::ones({2}), at::ones({3})})},
  };
}

TEST(ModelTensors, OfOtherMemoryThanTheirValuesAreRefusedByName) {
  for (const Odd& odd : odd_tensors()) {
    SCOPED_TRACE(odd.word);
    const auto with_buffer = std::make_shared<Mlp>();
    with_buffer->register_buffer("adjacency", odd.tensor);
    EXPECT_THAT(error_of([&] { Trainer(runtime(), with_buffer, SGD(0.1)); }),
                AllOf(HasSubstr("buffer adjacency"), HasSubstr(odd.word)));
    EXPECT_THAT(error_of([&] { DataParallel(runtime().communicator(), with_buffer); }),
                AllOf(HasSubstr("buffer adjacency"), HasSubstr(odd.word)));
    const auto with_frozen = std::make_shared<Mlp>();
    with_frozen->register_parameter("table", odd.tensor, /*requires_grad=*/false);
    EXPECT_THAT(error_of([&] { Trainer(runtime(), with_frozen, SGD(0.1)); }),
                AllOf(HasSubstr("parameter table"), HasSubstr(odd.word)));
  }
}

TEST(ModelTensors, AreRefusedOnEveryRankWhereOneRankHasAnOddOne) {
  const auto model = std::make_shared<Mlp>();
  const bool is_last = runtime().rank() == runtime().size() - 1;
  model->register_buffer("phase", is_last ? at::eye(4).to_sparse() : at::eye(4));
  EXPECT_THAT(error_of([&] { Trainer(runtime(), model, SGD(0.1)); }), HasSubstr("buffer phase"));
  EXPECT_THAT(error_of([&] { DataParallel(runtime().communicator(), model); }),
              HasSubstr("buffer phase"));
}

TEST(ModelTensors, MadeWhollyUnderInferenceModeAreRefusedByName) {
  std::shared_ptr<Mlp> model;
  {
    const c10::InferenceMode guard;
    model = std::make_shared<Mlp>();
  }
  EXPECT_THAT(error_of([&] { Trainer(runtime(), model, SGD(0.1)); }),
              AllOf(HasSubstr("parameter first.weight"), HasSubstr("InferenceMode")));
}

TEST(ModelTensors, ThatAreLazilyConjugatedOrNegatedKeepTheirValues) {
  const auto conjugate = [] { return at::conj(at::polar(at::ones({4}), at::arange(4) * 0.5)); };
  const auto negative = [&] { return at::imag(conjugate()); };
  ASSERT_TRUE(negative().is_neg());
  const auto model = std::make_shared<Mlp>();
  model->register_buffer("conjugated", conjugate());
  model->register_buffer("negated", negative());
  model->register_parameter("frozen", negative(), /*requires_grad=*/false);
  const at::Tensor conjugated = conjugate().clone();
  const at::Tensor negated = negative().clone();
  Trainer trainer(runtime(), model, SGD(0.1));
  for (int64_t step = 0; step < 2; ++step) {
    trainer.step([&] { return scaled_loss(*model, step); });
  }
  EXPECT_TRUE(at::equal(model->named_buffers()["conjugated"], conjugated));
  EXPECT_TRUE(at::equal(model->named_buffers()["negated"], negated));
  EXPECT_TRUE(at::equal(model->named_parameters()["frozen"], negated));
  EXPECT_TRUE(trainer.replicas_agree());
}

TEST(ModelTensors, WithoutGradientInOneOfSeveralLossesAreNamedByTheLoss) {
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime(), model, SGD(0.1), TrainerOptions().losses(2));
  EXPECT_THAT(error_of([&] {
                trainer.step([&] {
                  return Loss::several({scaled_loss(*model, 0).tensor(), at::zeros({})});
                });
              }),
              HasSubstr("loss 1 of 2, counted from 0: the loss does not depend on a trainable"));
}

TEST(ModelTensors, WithoutElementsAreTrained) {
  for (const TrainerOptions& options :
       {TrainerOptions(), TrainerOptions().shard_optimizer(true), TrainerOptions().ema(0.9),
        TrainerOptions().precision(Precision::O2(at::kBFloat16)),
        TrainerOptions().reproducible(true)}) {
    const auto model = std::make_shared<testing::OneWeight>(at::zeros({0, 4}));
    Trainer trainer(runtime(), model, AdamW(1e-3), options);
    for (int64_t step = 0; step < 3; ++step) {
      trainer.step([&] { return model->weight.to(at::kFloat).sum(); });
    }
    EXPECT_EQ(trainer.updates(), 3);
    EXPECT_TRUE(trainer.replicas_agree());
  }
}

}  // namespace
}  // namespace lockstep
