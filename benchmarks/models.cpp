#include "models.h"

#include <lockstep/collectives/error.h>
#include <torch/torch.h>

#include <array>

namespace lockstep::benchmarks {
namespace {

namespace nn = torch::nn;
using at::Tensor;

struct LstmLanguageModel : nn::Module {
  static constexpr int64_t vocabulary = 33278, units = 200, layers = 2, tokens = 35, batch = 20;
  nn::Dropout dropout{0.2};
  nn::Embedding embedding{vocabulary, units};
  nn::LSTM lstm{nn::LSTMOptions(units, units).num_layers(layers).dropout(0.2)};
  nn::Linear decoder{units, vocabulary};

  LstmLanguageModel() {
    register_module("dropout", dropout);
    register_module("embedding", embedding);
    register_module("lstm", lstm);
    register_module("decoder", decoder);
  }
  Tensor forward(const Tensor& input) {
    const Tensor hidden = std::get<0>(lstm(dropout(embedding(input))));
    return decoder(dropout(hidden)).flatten(0, 1);
  }
  static Tensor inputs() { return torch::randint(vocabulary, {tokens, batch}, torch::kLong); }
  static Tensor targets() { return torch::randint(vocabulary, {tokens * batch}, torch::kLong); }
};

struct GptBlock : nn::Module {
  static constexpr int64_t heads = 8;
  nn::LayerNorm norm1, norm2;
  nn::Linear qkv, projection, up, down;

  explicit GptBlock(int64_t units)
      : norm1(nn::LayerNormOptions({units})),
        norm2(nn::LayerNormOptions({units})),
        qkv(units, 3 * units),
        projection(units, units),
        up(units, 4 * units),
        down(4 * units, units) {
    register_module("norm1", norm1);
    register_module("norm2", norm2);
    register_module("qkv", qkv);
    register_module("projection", projection);
    register_module("up", up);
    register_module("down", down);
  }
  Tensor forward(const Tensor& x) {
    const int64_t batch = x.size(0), length = x.size(1), units = x.size(2);
    const Tensor split =
        qkv(norm1(x)).view({batch, length, 3, heads, units / heads}).permute({2, 0, 3, 1, 4});
    const Tensor mixed =
        at::scaled_dot_product_attention(split[0], split[1], split[2], {}, 0.0, true);
    const Tensor y = x + projection(mixed.transpose(1, 2).reshape({batch, length, units}));
    return y + down(at::gelu(up(norm2(y))));
  }
};

struct Gpt : nn::Module {
  static constexpr int64_t vocabulary = 256, units = 256, layers = 6, length = 128, batch = 8;
  nn::Embedding token{vocabulary, units}, position{length, units};
  std::vector<std::shared_ptr<GptBlock>> blocks;
  nn::Linear head{units, vocabulary};

  Gpt() {
    register_module("token", token);
    register_module("position", position);
    for (int64_t i = 0; i < layers; ++i) {
      blocks.push_back(
          register_module("block" + std::to_string(i), std::make_shared<GptBlock>(units)));
    }
    register_module("head", head);
  }
  Tensor forward(const Tensor& input) {
    Tensor x = token(input) + position(at::arange(input.size(1)));
    for (const auto& block : blocks) {
      x = block->forward(x);
    }
    return head(x).flatten(0, 1);
  }
  static Tensor inputs() { return torch::randint(vocabulary, {batch, length}, torch::kLong); }
  static Tensor targets() { return torch::randint(vocabulary, {batch * length}, torch::kLong); }
};

nn::Conv2d convolution(int64_t in, int64_t out, int64_t size, int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false));
}

struct ResidualBlock : nn::Module {
  nn::Conv2d conv1, conv2;
  nn::BatchNorm2d norm1, norm2;
  nn::Sequential shortcut;

  ResidualBlock(int64_t in, int64_t out, int64_t stride)
      : conv1(convolution(in, out, 3, stride)),
        conv2(convolution(out, out, 3, 1)),
        norm1(out),
        norm2(out) {
    register_module("conv1", conv1);
    register_module("norm1", norm1);
    register_module("conv2", conv2);
    register_module("norm2", norm2);
    register_module("shortcut", shortcut);
    if (stride != 1 || in != out) {
      shortcut->push_back(convolution(in, out, 1, stride));
      shortcut->push_back(nn::BatchNorm2d(out));
    }
  }
  Tensor forward(const Tensor& x) {
    const Tensor y = norm2(conv2(at::relu(norm1(conv1(x)))));
    return at::relu(y + (shortcut->is_empty() ? x : shortcut->forward(x)));
  }
};

struct ResNet18 : nn::Module {
  static constexpr int64_t batch = 16, classes = 100;
  nn::Conv2d stem = convolution(3, 64, 3, 1);
  nn::BatchNorm2d norm{64};
  std::vector<std::shared_ptr<ResidualBlock>> blocks;
  nn::Linear head{512, classes};

  ResNet18() {
    register_module("stem", stem);
    register_module("norm", norm);
    int64_t in = 64;
    for (const int64_t out : std::array<int64_t, 4>{64, 128, 256, 512}) {
      for (const int64_t stride : {out == 64 ? 1 : 2, 1}) {
        blocks.push_back(register_module("block" + std::to_string(blocks.size()),
                                         std::make_shared<ResidualBlock>(in, out, stride)));
        in = out;
      }
    }
    register_module("head", head);
  }
  Tensor forward(const Tensor& input) {
    Tensor x = at::relu(norm(stem(input)));
    for (const auto& block : blocks) {
      x = block->forward(x);
    }
    return head(at::adaptive_avg_pool2d(x, {1, 1}).flatten(1));
  }
  static Tensor inputs() { return torch::randn({batch, 3, 32, 32}); }
  static Tensor targets() { return torch::randint(classes, {batch}, torch::kLong); }
};

template <int64_t units>
struct Mlp : nn::Module {
  nn::Sequential layers;

  Mlp() {
    for (int i = 0; i < 16; ++i) {
      layers->push_back(nn::Linear(units, units));
    }
    register_module("layers", layers);
  }
  Tensor forward(const Tensor& x) { return layers->forward(x); }
  static Tensor inputs() { return torch::randn({1, units}); }
  static Tensor targets() { return torch::randint(units, {1}, torch::kLong); }
};

template <typename Network>
Workload workload() {
  auto network = std::make_shared<Network>();
  auto batch = std::make_shared<std::pair<Tensor, Tensor>>();
  return {network,
          [batch] {
            *batch = {Network::inputs(), Network::targets()};
          },
          [network, batch] {
            return nn::functional::cross_entropy(network->forward(batch->first), batch->second);
          }};
}

}  // namespace

Workload make_workload(const std::string& name) {
  if (name == "lstm") {
    return workload<LstmLanguageModel>();
  }
  if (name == "gpt") {
    return workload<Gpt>();
  }
  if (name == "resnet18") {
    return workload<ResNet18>();
  }
  if (name == "mlp-small") {
    return workload<Mlp<16>>();
  }
  LOCKSTEP_CHECK(name == "mlp", "no workload is named ", name,
                 "; there are lstm, gpt, resnet18, mlp, mlp-small");
  return workload<Mlp<1024>>();
}

int64_t count_parameters(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const Tensor& parameter : module.parameters()) {
    count += parameter.numel();
  }
  return count;
}

}  // namespace lockstep::benchmarks
