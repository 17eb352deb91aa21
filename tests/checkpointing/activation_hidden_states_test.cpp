// The hidden states of an encoder whose blocks are checkpointed one by one.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/activation/checkpoint.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/linear.h>

namespace lockstep {
namespace {

struct Encoder : torch::nn::Module {
  Encoder() {
    for (int block = 0; block < 4; ++block) {
      blocks.push_back(register_module("block" + std::to_string(block), torch::nn::Linear(6, 6)));
    }
  }
  /// The input and the output of each block, as BERT's output_hidden_states gives them.
  std::vector<at::Tensor> forward(const at::Tensor& x, bool checkpointed) {
    std::vector<at::Tensor> hidden = {x};
    for (torch::nn::Linear& block : blocks) {
      auto run = [block](const at::Tensor& h) mutable { return at::tanh(block(h)); };
      hidden.push_back(checkpointed ? checkpoint(run, hidden.back()) : run(hidden.back()));
    }
    return hidden;
  }
  std::vector<torch::nn::Linear> blocks;
};

TEST(HiddenStates, OfCheckpointedBlocksGiveThePlainGradients) {
  at::manual_seed(4);
  Encoder encoder;
  const at::Tensor x = at::randn({3, 6});
  std::vector<std::vector<at::Tensor>> gradients;
  std::vector<std::vector<at::Tensor>> states;
  for (const bool checkpointed : {false, true}) {
    encoder.zero_grad();
    states.push_back(encoder.forward(x, checkpointed));
    // Each layer's state counts, the middle ones more.
    at::Tensor loss = at::zeros({});
    for (size_t i = 1; i < states.back().size(); ++i) {
      loss = loss + states.back()[i].square().mean() * static_cast<double>(i % 3 + 1);
    }
    loss.backward();
    gradients.emplace_back();
    for (const at::Tensor& parameter : encoder.parameters()) {
      gradients.back().push_back(parameter.grad().clone());
    }
  }
  ASSERT_EQ(states[1].size(), 5U);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(at::equal(states[0][i], states[1][i])) << i;
  }
  ASSERT_EQ(gradients[1].size(), 8U);
  for (size_t i = 0; i < 8; ++i) {
    EXPECT_TRUE(at::equal(gradients[0][i], gradients[1][i])) << i;
    EXPECT_GT(gradients[0][i].abs().max().item<float>(), 0) << i;
  }
}

}  // namespace
}  // namespace lockstep
