// The models of the examples compute what the models of Python's libraries compute from the same
// weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/activation/memory_meter.h>
#include <lockstep/checkpointing/snapshot/safetensors_writer.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/load_weights.h>
#include <torch/torch.h>

#include <cstdlib>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/bert.h"
#include "models/gpt2.h"
#include "models/resnet.h"
#include "runtime/temporary_folder.h"

namespace {

using lockstep::snapshot::NamedTensors;
using lockstep::testing::TemporaryFolder;

int64_t parameters(const torch::nn::Module& model) {
  int64_t count = 0;
  for (const torch::Tensor& parameter : model.parameters()) {
    count += parameter.numel();
  }
  return count;
}

/// Adds weights, before anything is computed.
void add_state(const torch::nn::Module& model, NamedTensors& all, const std::string& prefix) {
  for (const auto& tensor : model.named_parameters()) {
    all.emplace_back(prefix + tensor.key(), tensor.value().detach().clone());
  }
  for (const auto& tensor : model.named_buffers()) {
    all.emplace_back(prefix + tensor.key(), tensor.value().clone());
  }
}

void add_gradients(const torch::nn::Module& model, NamedTensors& all) {
  for (const auto& parameter : model.named_parameters()) {
    all.emplace_back("gradient:" + parameter.key(), parameter.value().grad());
  }
}

/// Writes a case for Python, behind those in `paths`.
void write_case(const TemporaryFolder& folder, const std::string& name, const NamedTensors& all,
                std::string& paths) {
  const std::string path = folder.file(name + ".safetensors");
  lockstep::snapshot::save_safetensors(path, all);
  paths += " " + path;
}

/// Lets Python compute the cases and compare.
void expect_python_agrees(const std::string& paths) {
  const std::string command = std::string(LOCKSTEP_TEST_PYTHON) + " -B " + MODELS_PEER + paths;
  EXPECT_EQ(std::system(command.c_str()), 0) << paths;
}

TEST(ExampleModels, AResNetComputesWhatTorchvisionsComputes) {
  const TemporaryFolder folder;
  std::string cases;
  for (const int64_t depth : {18, 50}) {
    for (const bool large : {false, true}) {
      torch::manual_seed(depth);
      ResNetSize size;
      size.depth = depth;
      size.classes = 7;
      size.width = 4;
      size.large_images = large;
      ResNet model(size);
      NamedTensors all;
      add_state(*model, all, "weight:");
      const torch::Tensor images = torch::randn({4, 3, large ? 64 : 16, large ? 64 : 16});
      const torch::Tensor labels = torch::randint(7, {4}, torch::kLong);
      const torch::Tensor scores = model->forward(images);
      torch::nn::functional::cross_entropy(scores, labels).backward();
      add_gradients(*model, all);
      for (const auto& buffer : model->named_buffers()) {
        all.emplace_back("after:" + buffer.key(), buffer.value().clone());
      }
      all.insert(all.end(), {{"images", images}, {"labels", labels}, {"scores", scores.detach()}});
      write_case(folder, "resnet" + std::to_string(depth) + (large ? "-large" : "-small"), all,
                 cases);
    }
  }
  expect_python_agrees(cases);
}

TEST(ExampleModels, ResNetsHaveAsManyParametersAsTorchvisions) {
  const std::vector<std::pair<int64_t, int64_t>> published = {
      {18, 11'689'512}, {34, 21'797'672}, {50, 25'557'032}, {101, 44'549'160}, {152, 60'192'808}};
  for (const auto& [depth, count] : published) {
    ResNetSize size;
    size.depth = depth;
    size.classes = 1000;
    size.large_images = true;
    EXPECT_EQ(parameters(*ResNet(size)), count) << depth;
  }
  ResNetSize size;
  size.depth = 19;
  EXPECT_THROW(static_cast<void>(ResNet(size)), lockstep::Error);
}

TEST(ExampleModels, FrozenNormsKeepTheirStatisticsInTrainMode) {
  ResNetSize size;
  size.width = 4;
  ResNet model(size);
  model->freeze_norms();
  const auto train_once = [&] {
    model->train();
    model->forward(torch::randn({4, 3, 8, 8})).sum().backward();
    return model->bn1->running_mean.abs().sum().item<float>();
  };
  EXPECT_EQ(train_once(), 0.0F);
  EXPECT_EQ(train_once(), 0.0F);
  EXPECT_FALSE(model->bn1->weight.grad().defined());
  EXPECT_TRUE(model->conv1->weight.grad().defined());
  EXPECT_TRUE(model->is_training());

  model->norms_frozen = false;
  EXPECT_GT(train_once(), 0.0F);
}

BertSize small_bert() {
  BertSize size;
  size.vocabulary = 23;
  size.layers = 2;
  size.width = 128;
  size.positions = 12;
  return size;
}

TEST(ExampleModels, ABertComputesWhatHuggingFacesComputes) {
  const TemporaryFolder folder;
  torch::manual_seed(5);
  Bert model(small_bert());
  model->eval();
  torch::Tensor pieces = torch::randint(1, 23, {3, 9}, torch::kLong);
  pieces[1].narrow(0, 6, 3).zero_();
  torch::Tensor types = torch::zeros({3, 9}, torch::kLong);
  types.narrow(1, 4, 5).fill_(1);
  const torch::Tensor labels = torch::randint(3, {3}, torch::kLong);
  NamedTensors all = {{"pieces", pieces}, {"types", types}, {"labels", labels}};
  add_state(*model, all, "weight:");
  const torch::Tensor scores = model->forward(pieces, types);
  torch::nn::functional::cross_entropy(scores, labels).backward();
  all.emplace_back("scores", scores.detach());
  all.emplace_back("without types", model->forward(pieces).detach());
  add_gradients(*model, all);
  const auto states = model->hidden_states(pieces, types);
  ASSERT_EQ(states.size(), 3U);
  for (size_t i = 0; i < states.size(); ++i) {
    all.emplace_back("state " + std::to_string(i), states[i].detach());
  }
  std::string cases;
  write_case(folder, "bert", all, cases);
  expect_python_agrees(cases);
}

TEST(ExampleModels, ABertThatRecomputesHasTheGradientsOfAPlainOneInLessMemory) {
  const torch::Tensor pieces = torch::randint(1, 23, {3, 90}, torch::kLong);
  BertSize size = small_bert();
  size.positions = 90;
  size.dropout = 0.1;
  std::vector<torch::Tensor> gradients;
  std::vector<int64_t> bytes;  // from forward to backward
  for (const auto recompute : {Recompute::nothing, Recompute::cheap_parts, Recompute::layers}) {
    torch::manual_seed(6);
    Bert model(size, recompute);
    const lockstep::MemoryMeter meter(torch::kCPU);
    const torch::Tensor sum = model->forward(pieces).square().sum();
    bytes.push_back(meter.live());
    sum.backward();
    gradients.push_back(model->words->weight.grad());
  }
  EXPECT_TRUE(torch::equal(gradients[0], gradients[1]));
  EXPECT_TRUE(torch::equal(gradients[0], gradients[2]));
  EXPECT_LT(bytes[1], bytes[0] * 2 / 3);
  EXPECT_LT(bytes[2], bytes[1] * 2 / 3);
}

/// A file as published: old names, no classifier, another head.
std::string write_published_bert(const TemporaryFolder& folder, const Bert& model,
                                 const std::string& left_out = "classifier.") {
  NamedTensors all = {{"cls.predictions.bias", torch::zeros({23})}};
  for (const auto& tensor : model->named_parameters()) {
    std::string name = tensor.key();
    for (const auto& [now, old] : {std::pair("LayerNorm.weight", "LayerNorm.gamma"),
                                   std::pair("LayerNorm.bias", "LayerNorm.beta")}) {
      if (const size_t at = name.find(now); at != std::string::npos) {
        name.replace(at, std::string(now).size(), old);
      }
    }
    if (name.rfind(left_out, 0) != 0 && name.rfind("classifier.", 0) != 0) {
      all.emplace_back(name, tensor.value().detach());
    }
  }
  const std::string path = folder.file("model.safetensors");
  lockstep::snapshot::save_safetensors(path, all);
  return path;
}

TEST(ExampleModels, APublishedBertLoadsWithoutItsHead) {
  const TemporaryFolder folder;
  Bert published(small_bert());
  Bert loaded(small_bert());
  const torch::Tensor classifier = loaded->classifier->weight.detach().clone();
  load_bert(loaded, write_published_bert(folder, published));
  const torch::Tensor pieces = torch::randint(1, 23, {3, 9}, torch::kLong);
  published->eval();
  loaded->eval();
  EXPECT_TRUE(
      torch::equal(published->hidden_states(pieces).back(), loaded->hidden_states(pieces).back()));
  EXPECT_TRUE(torch::equal(loaded->classifier->weight, classifier));

  const std::string path = write_published_bert(folder, published, "bert.pooler.");
  EXPECT_THROW(load_bert(loaded, path), lockstep::Error);
}

TEST(ExampleModels, TheDefaultSizesAreThoseOfThePublishedModels) {
  BertSize bert;
  bert.classes = 2;
  EXPECT_EQ(parameters(*Bert(bert)), 109'483'778);
  EXPECT_EQ(parameters(*Gpt2(Gpt2Size())), 124'439'808);
}

Gpt2Size small_gpt2() {
  Gpt2Size size;
  size.vocabulary = 31;
  size.layers = 2;
  size.width = 12;
  size.heads = 3;
  size.context = 8;
  return size;
}

/// As published: four matrices of each block with rows and columns exchanged.
NamedTensors published_gpt2(const Gpt2& model, const std::string& prefix) {
  NamedTensors all;
  for (const auto& tensor : model->named_parameters()) {
    const bool exchanged =
        tensor.key().find(".c_") != std::string::npos && tensor.value().dim() == 2;
    const torch::Tensor value = tensor.value().detach();
    all.emplace_back(prefix + tensor.key(), exchanged ? value.t().contiguous() : value.clone());
  }
  return all;
}

TEST(ExampleModels, AGpt2ComputesWhatHuggingFacesComputesFromAPublishedFile) {
  const TemporaryFolder folder;
  torch::manual_seed(7);
  const Gpt2 source(small_gpt2());
  std::string cases;
  for (const std::string prefix : {"", "transformer."}) {
    NamedTensors published = published_gpt2(source, prefix);
    published.emplace_back(prefix + "h.0.attn.bias", torch::ones({1, 1, 8, 8}));
    const std::string path = folder.file("model.safetensors");
    lockstep::snapshot::save_safetensors(path, published);
    Gpt2 model(small_gpt2());
    load_gpt2(model, path);
    model->eval();

    NamedTensors all = published_gpt2(source, "weight:");
    const torch::Tensor tokens = torch::randint(31, {2, 8}, torch::kLong);
    const torch::Tensor labels = torch::randint(31, {2, 8}, torch::kLong);
    const torch::Tensor scores = model->forward(tokens);
    torch::nn::functional::cross_entropy(scores.flatten(0, 1), labels.flatten()).backward();
    for (auto& [name, gradient] : published_gpt2(model, "")) {
      gradient = model->named_parameters()[name].grad();
      all.emplace_back("gradient:" + name, name.find(".c_") != name.npos && gradient.dim() == 2
                                               ? gradient.t().contiguous()
                                               : gradient);
    }
    all.insert(all.end(), {{"tokens", tokens}, {"labels", labels}, {"scores", scores.detach()}});
    write_case(folder, prefix + "gpt2", all, cases);

    published.pop_back();
    published.pop_back();  // ln_f.bias
    lockstep::snapshot::save_safetensors(path, published);
    EXPECT_THROW(load_gpt2(model, path), lockstep::Error);
  }
  expect_python_agrees(cases);
}

TEST(ExampleModels, SampledTokensAreAmongTheLikeliest) {
  torch::manual_seed(8);
  Gpt2 model(small_gpt2());
  SampleOptions greedy;
  greedy.temperature = 0.0;
  const auto first = sample(model, {3}, 12, greedy);  // more than the context
  EXPECT_EQ(first.size(), 13U);
  EXPECT_EQ(first, sample(model, {3}, 12, greedy));
  SampleOptions one;
  one.top_k = 1;
  EXPECT_EQ(first, sample(model, {3}, 12, one));
  const torch::Tensor scores = model->forward(torch::tensor({{3}}, torch::kLong))[0][-1];
  EXPECT_EQ(first[1], scores.argmax().item<int64_t>());
  SampleOptions two;
  two.top_k = 2;
  const torch::Tensor likeliest = std::get<1>(scores.topk(2));
  std::set<int64_t> seen;
  for (int i = 0; i < 40; ++i) {
    seen.insert(sample(model, {3}, 1, two)[1]);
  }
  EXPECT_THAT(seen, ::testing::UnorderedElementsAre(likeliest[0].item<int64_t>(),
                                                    likeliest[1].item<int64_t>()));
  EXPECT_THROW(sample(model, {}, 1), lockstep::Error);
}

}  // namespace
