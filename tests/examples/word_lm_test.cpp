// The word model computes what PyTorch's computes from the same weights.
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/safetensors_writer.h>
#include <lockstep/collectives/exceptions.h>
#include <torch/torch.h>

#include <cstdlib>
#include <string>

#include "models/word_lm.h"
#include "runtime/temporary_folder.h"

namespace {

/// Writes weights, inputs, scores and the gradients of one step, of CELL.tied or CELL.untied.
std::string write_case(const lockstep::testing::TemporaryFolder& folder, const std::string& cell,
                       bool tied) {
  torch::manual_seed(3);
  WordLmSize size;
  size.cell = cell;
  size.words = 17;
  size.width = 6;
  size.hidden = tied ? 6 : 5;
  size.tied = tied;
  WordLm model(size);
  model->eval();
  const torch::Tensor first = torch::randint(17, {4, 3}, torch::kLong);
  const torch::Tensor second = torch::randint(17, {5, 3}, torch::kLong);
  const torch::Tensor following = torch::randint(17, {5, 3}, torch::kLong);
  WordLmState state;
  model->forward(first, state);
  state = detached(state);
  const torch::Tensor scores = model->forward(second, state);
  const torch::Tensor loss =
      torch::nn::functional::cross_entropy(scores.flatten(0, 1), following.flatten());
  loss.backward();

  lockstep::snapshot::NamedTensors all = {{"first", first},
                                          {"second", second},
                                          {"following", following},
                                          {"scores", scores.detach()},
                                          {"loss", loss.detach()}};
  for (const auto& parameter : model->named_parameters()) {
    const bool replaced = tied && parameter.key() == "decoder.weight";
    const torch::Tensor used = replaced ? model->encoder->weight : parameter.value();
    all.emplace_back("weight:" + parameter.key(), used.detach().clone());
    if (!replaced) {
      all.emplace_back("gradient:" + parameter.key(), used.grad());
    }
  }
  const std::string path = folder.file(cell + (tied ? ".tied" : ".untied") + ".safetensors");
  lockstep::snapshot::save_safetensors(path, all);
  return path;
}

TEST(WordLm, ComputesWhatPyTorchsModelComputesFromTheSameWeights) {
  const lockstep::testing::TemporaryFolder folder;
  std::string command = std::string(LOCKSTEP_TEST_PYTHON) + " -B " + WORD_LM_PEER;
  for (const std::string cell : {"LSTM", "GRU", "RNN_TANH", "RNN_RELU"}) {
    for (const bool tied : {false, true}) {
      command += " " + write_case(folder, cell, tied);
    }
  }
  EXPECT_EQ(std::system(command.c_str()), 0);
}

TEST(WordLm, RefusesAnUnknownCellAndTiedWeightsOfOtherSizes) {
  WordLmSize size;
  size.words = 5;
  size.cell = "CNN";
  EXPECT_THROW(static_cast<void>(WordLm(size)), lockstep::Error);
  size.cell = "GRU";
  size.tied = true;
  size.hidden = size.width + 1;
  EXPECT_THROW(static_cast<void>(WordLm(size)), lockstep::Error);
}

}  // namespace
