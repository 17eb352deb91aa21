// What the peers of a rank can read of its Trainer.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/impl/activity.h>
#include <lockstep/runtime/trainer.h>
#include <torch/nn/modules/linear.h>

namespace lockstep {
namespace {

TEST(Activity, OfAStepIsForwardBackwardAndWhatFollows) {
  const auto slot = std::make_shared<detail::ActivitySlot>();
  detail::show_activity_in(slot);
  Runtime runtime = Runtime::solo();
  torch::nn::Linear model(2, 1);
  Trainer trainer(runtime, model.ptr(), SGD(0.1), TrainerOptions().accumulate(2));
  std::string forward;
  std::string backward;
  for (int step = 0; step < 3; ++step) {
    trainer.step([&] {
      forward = slot->text();
      const at::Tensor loss = model->forward(at::ones({1, 2})).sum();
      loss.register_hook([&](const at::Tensor& gradient) {
        backward = slot->text();
        return gradient;
      });
      return loss;
    });
    const std::string number = std::to_string(step);
    EXPECT_EQ(forward, "forward of micro-batch " + number);
    EXPECT_EQ(backward, "backward of micro-batch " + number);
    EXPECT_EQ(slot->text(), "what follows micro-batch " + number);
  }
}

}  // namespace
}  // namespace lockstep
