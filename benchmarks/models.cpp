#include "models.h"

#include <lockstep/collectives/check.h>
#include <array>
#include <map>

#include "blocks.h"

namespace lockstep::benchmarks {
namespace {

namespace nn = torch::nn;
using at::Tensor;

struct Network : nn::Module {
  virtual Tensor forward(const Tensor& input) = 0;
  virtual Tensor inputs() const = 0;
  virtual Tensor targets() const = 0;
  virtual Tensor loss(const Tensor& input, const Tensor& targets) {
    return nn::functional::cross_entropy(forward(input), targets);
  }
  /// From now on lockstep's fused layers compute what they can.
  virtual void fuse_layers() { LOCKSTEP_CHECK(false, "this workload has no fused layers"); }
};

struct LstmLanguageModel : Network {
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
  Tensor hidden(const Tensor& input) {
    return dropout(std::get<0>(lstm(dropout(embedding(input))))).flatten(0, 1);
  }
  Tensor forward(const Tensor& input) override { return decoder(hidden(input)); }
  Tensor loss(const Tensor& input, const Tensor& targets) override {
    return fused
               ? fused_linear_cross_entropy(hidden(input), decoder->weight, decoder->bias, targets)
               : Network::loss(input, targets);
  }
  void fuse_layers() override { fused = true; }
  Tensor inputs() const override {
    return torch::randint(vocabulary, {tokens, batch}, torch::kLong);
  }
  Tensor targets() const override {
    return torch::randint(vocabulary, {tokens * batch}, torch::kLong);
  }
  bool fused = false;
};

/// Layers between an embedding of tokens and their positions, and a head.
struct GptSize {
  int64_t vocabulary = 0, units = 0, heads = 0, layers = 0, length = 0, batch = 0;
  bool tied = false;  // GPT-2: a last norm, and the embedding again as head
};

struct Gpt : Network {
  GptSize size;
  nn::Embedding token, position;
  nn::Sequential layers;
  nn::LayerNorm norm{nullptr};
  nn::Linear head{nullptr};
  bool fused = false;

  explicit Gpt(const GptSize& size)
      : size(size),
        token(register_module("token", nn::Embedding(size.vocabulary, size.units))),
        position(register_module("position", nn::Embedding(size.length, size.units))) {
    const TransformerLayer::Options options{size.units, size.heads, true, true, 0.0};
    for (int64_t i = 0; i < size.layers; ++i) {
      layers->push_back(TransformerLayer(options));
    }
    register_module("layers", layers);
    if (size.tied) {
      norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({size.units})));
    } else {
      head = register_module("head", nn::Linear(size.units, size.vocabulary));
    }
  }
  Tensor hidden(const Tensor& input) {
    const Tensor places = at::arange(input.size(1), input.options());
    const Tensor x = layers->forward(token(input) + position(places));
    return (size.tied ? norm(x) : x).flatten(0, 1);
  }
  Tensor forward(const Tensor& input) override {
    const Tensor x = hidden(input);
    return size.tied ? at::linear(x, token->weight) : head(x);
  }
  Tensor loss(const Tensor& input, const Tensor& targets) override {
    if (!fused) {
      return Network::loss(input, targets);
    }
    return fused_linear_cross_entropy(hidden(input), size.tied ? token->weight : head->weight,
                                      size.tied ? Tensor() : head->bias, targets);
  }
  void fuse_layers() override {
    fused = true;
    for (const auto& layer : layers->children()) {
      layer->as<TransformerLayer>()->options.fused = true;
    }
  }
  Tensor inputs() const override {
    return torch::randint(size.vocabulary, {size.batch, size.length}, torch::kLong);
  }
  Tensor targets() const override {
    return torch::randint(size.vocabulary, {size.batch * size.length}, torch::kLong);
  }
};

/// An encoder of tokens with a head for two classes.
struct BertSize {
  int64_t vocabulary = 0, units = 0, heads = 0, layers = 0, length = 0, batch = 0;
};

struct Bert : Network {
  BertSize size;
  nn::Embedding token, position, kind;
  nn::LayerNorm norm;
  nn::Sequential layers;
  nn::Linear pooler, head;

  explicit Bert(const BertSize& size)
      : size(size),
        token(register_module("token", nn::Embedding(size.vocabulary, size.units))),
        position(register_module("position", nn::Embedding(512, size.units))),
        kind(register_module("kind", nn::Embedding(2, size.units))),
        norm(register_module("norm", nn::LayerNorm(nn::LayerNormOptions({size.units})))),
        pooler(register_module("pooler", nn::Linear(size.units, size.units))),
        head(register_module("head", nn::Linear(size.units, 2))) {
    const TransformerLayer::Options options{size.units, size.heads, false, false, dropout};
    for (int64_t i = 0; i < size.layers; ++i) {
      layers->push_back(TransformerLayer(options));
    }
    register_module("layers", layers);
  }
  Tensor forward(const Tensor& input) override {
    const Tensor places = at::arange(input.size(1), input.options());
    const Tensor x = token(input) + position(places) + kind(at::zeros_like(places));
    const Tensor y = layers->forward(at::dropout(norm(x), dropout, true));
    return head(at::dropout(at::tanh(pooler(y.select(1, 0))), dropout, true));
  }
  Tensor inputs() const override {
    return torch::randint(size.vocabulary, {size.batch, size.length}, torch::kLong);
  }
  Tensor targets() const override { return torch::randint(2, {size.batch}, torch::kLong); }

  static constexpr double dropout = 0.1;
};

struct ResNetSize {
  std::array<int64_t, 4> depths{};
  int64_t width = 64, image = 0, classes = 0, batch = 0;
  bool large_images = false;  // a stem of 7 x 7 and a pool, both of stride 2; else of 3 x 3
};

template <typename Block>
struct ResNet : Network {
  ResNetSize size;
  nn::Sequential stem, blocks;
  nn::Linear head{nullptr};

  explicit ResNet(const ResNetSize& size)
      : size(size),
        stem(size.large_images ? normalised(3, size.width, 7, 2)
                               : normalised(3, size.width, 3, 1)) {
    register_module("stem", stem);
    int64_t in = size.width, out = size.width;
    for (const int64_t depth : size.depths) {
      for (int64_t i = 0; i < depth; ++i) {
        blocks->push_back(Block(in, out, i == 0 && out > size.width ? 2 : 1));
        in = Block::expansion * out;
      }
      out *= 2;
    }
    register_module("blocks", blocks);
    head = register_module("head", nn::Linear(in, size.classes));
  }
  Tensor forward(const Tensor& input) override {
    Tensor x = at::relu(stem->forward(input));
    if (size.large_images) {
      x = at::max_pool2d(x, 3, 2, 1);
    }
    return head(at::adaptive_avg_pool2d(blocks->forward(x), {1, 1}).flatten(1));
  }
  Tensor inputs() const override { return torch::randn({size.batch, 3, size.image, size.image}); }
  Tensor targets() const override {
    return torch::randint(size.classes, {size.batch}, torch::kLong);
  }
};

struct Mlp : Network {
  int64_t units;
  nn::Sequential layers;

  explicit Mlp(int64_t units) : units(units) {
    for (int i = 0; i < 16; ++i) {
      layers->push_back(nn::Linear(units, units));
    }
    register_module("layers", layers);
  }
  Tensor forward(const Tensor& x) override { return layers->forward(x); }
  Tensor inputs() const override { return torch::randn({1, units}); }
  Tensor targets() const override { return torch::randint(units, {1}, torch::kLong); }
};

struct Scales : Network {
  static constexpr int64_t units = 8;

  Scales() {
    for (int i = 0; i < 20000; ++i) {
      register_parameter("scale" + std::to_string(i), torch::ones({units}));
    }
  }
  Tensor forward(const Tensor& x) override {
    Tensor scaled = x;
    for (const Tensor& scale : parameters()) {
      scaled = scaled * scale;
    }
    return scaled;
  }
  Tensor inputs() const override { return torch::randn({1, units}); }
  Tensor targets() const override { return torch::randint(units, {1}, torch::kLong); }
};

/// Where there are images, they and the convolutions are channels_last, if asked for.
Workload workload(const std::shared_ptr<Network>& network, const WorkloadOptions& options) {
  const auto placed = [options](const Tensor& tensor) {
    return tensor.dim() == 4 && options.channels_last
               ? tensor.to(options.device).contiguous(at::MemoryFormat::ChannelsLast)
               : tensor.to(options.device);
  };
  for (const Tensor& tensor : network->parameters()) {
    tensor.set_data(placed(tensor.detach()));
  }
  for (const Tensor& tensor : network->buffers()) {
    tensor.set_data(placed(tensor));
  }
  if (options.fused) {
    network->fuse_layers();
  }
  auto batch = std::make_shared<std::pair<Tensor, Tensor>>();
  return {network,
          [network, batch, placed] {
            *batch = {placed(network->inputs()), placed(network->targets())};
          },
          [network, batch] { return network->loss(batch->first, batch->second); }};
}

using Maker = std::function<Workload(const WorkloadOptions&)>;

template <typename Model, typename... Size>
Maker maker(const Size&... size) {
  return [size...](const WorkloadOptions& options) {
    return workload(std::make_shared<Model>(size...), options);
  };
}

const std::map<std::string, Maker>& makers() {
  static const std::map<std::string, Maker> all = {
      {"lstm", maker<LstmLanguageModel>()},
      {"gpt", maker<Gpt>(GptSize{256, 256, 8, 6, 128, 8, false})},
      {"gpt2", maker<Gpt>(GptSize{50257, 768, 12, 12, 1024, 8, true})},
      {"gpt2-tiny", maker<Gpt>(GptSize{64, 32, 2, 2, 16, 2, true})},
      {"bert", maker<Bert>(BertSize{30522, 768, 12, 12, 128, 64})},
      {"bert-tiny", maker<Bert>(BertSize{64, 32, 2, 2, 16, 2})},
      {"resnet18", maker<ResNet<BasicBlock>>(ResNetSize{{2, 2, 2, 2}, 64, 32, 100, 16, false})},
      {"resnet18-tiny", maker<ResNet<BasicBlock>>(ResNetSize{{1, 1, 1, 1}, 4, 8, 10, 2, false})},
      {"resnet50", maker<ResNet<Bottleneck>>(ResNetSize{{3, 4, 6, 3}, 64, 224, 1000, 256, true})},
      {"resnet50-tiny", maker<ResNet<Bottleneck>>(ResNetSize{{1, 1, 1, 1}, 4, 32, 10, 2, true})},
      {"mlp", maker<Mlp>(int64_t{1024})},
      {"mlp-small", maker<Mlp>(int64_t{16})},
      {"scales", maker<Scales>()}};
  return all;
}

}  // namespace

Workload make_workload(const std::string& name, const WorkloadOptions& options) {
  const auto found = makers().find(name);
  LOCKSTEP_CHECK(found != makers().end(), "no workload is named ", name, "; models.h lists them");
  return found->second(options);
}

int64_t count_parameters(const torch::nn::Module& module) {
  int64_t count = 0;
  for (const Tensor& parameter : module.parameters()) {
    count += parameter.numel();
  }
  return count;
}

}  // namespace lockstep::benchmarks
