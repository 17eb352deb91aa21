#include "chains.h"

#include <lockstep/collectives/error.h>
#include <torch/torch.h>

#include <memory>
#include <utility>

namespace lockstep::benchmarks {
namespace {

namespace nn = torch::nn;

struct EncoderLayer : nn::Module {
  EncoderLayer(int64_t units, int64_t heads)
      : heads(heads),
        qkv(register_module("qkv", nn::Linear(units, 3 * units))),
        projection(register_module("projection", nn::Linear(units, units))),
        up(register_module("up", nn::Linear(units, 4 * units))),
        down(register_module("down", nn::Linear(4 * units, units))),
        norm1(register_module("norm1", nn::LayerNorm(nn::LayerNormOptions({units})))),
        norm2(register_module("norm2", nn::LayerNorm(nn::LayerNormOptions({units})))) {}

  at::Tensor forward(const at::Tensor& x) {
    const int64_t batch = x.size(0), length = x.size(1), units = x.size(2);
    const auto parts =
        qkv(x).view({batch, length, 3, heads, units / heads}).permute({2, 0, 3, 1, 4}).unbind(0);
    const at::Tensor mixed = at::scaled_dot_product_attention(parts[0], parts[1], parts[2])
                                 .transpose(1, 2)
                                 .reshape({batch, length, units});
    const at::Tensor h = norm1(x + at::dropout(projection(mixed), 0.1, true));
    return norm2(h + at::dropout(down(at::gelu(up(h))), 0.1, true));
  }

  int64_t heads;
  nn::Linear qkv, projection, up, down;
  nn::LayerNorm norm1, norm2;
};

ChainWorkload encoder(int64_t units, int64_t heads, int64_t batch, int64_t length) {
  ChainWorkload workload;
  for (int layer = 0; layer < 12; ++layer) {
    workload.chain.push_back(chain_stage("layer " + std::to_string(layer),
                                         std::make_shared<EncoderLayer>(units, heads)));
  }
  workload.input = at::randn({batch, length, units});
  return workload;
}

nn::Conv2d convolution(int64_t in, int64_t out, int64_t size, int64_t stride) {
  return nn::Conv2d(nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false));
}

nn::Sequential normalised(int64_t in, int64_t out, int64_t size, int64_t stride) {
  return nn::Sequential(convolution(in, out, size, stride), nn::BatchNorm2d(out));
}

struct Bottleneck : nn::Module {
  Bottleneck(int64_t in, int64_t middle, int64_t stride)
      : first(register_module("first", normalised(in, middle, 1, 1))),
        second(register_module("second", normalised(middle, middle, 3, stride))),
        third(register_module("third", normalised(middle, 4 * middle, 1, 1))) {
    if (stride != 1 || in != 4 * middle) {
      shortcut = register_module("shortcut", normalised(in, 4 * middle, 1, stride));
    }
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor h = second->forward(first->forward(x).relu()).relu();
    return at::relu(third->forward(h) + (shortcut ? shortcut->forward(x) : x));
  }
  nn::Sequential first, second, third, shortcut{nullptr};
};

ChainWorkload resnet50() {
  ChainWorkload workload;
  auto stem = normalised(3, 64, 7, 2);
  stem->push_back(nn::ReLU());
  stem->push_back(nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)));
  const auto add = [&](const std::string& name, nn::Sequential part) {
    workload.chain.push_back({name, [part](at::Tensor x) mutable { return part->forward(x); },
                              [part] { return part->parameters(); },
                              [part] { return part->buffers(); }});
  };
  add("stem", stem);
  int64_t in = 64;
  for (const auto& [middle, count] :
       {std::pair<int64_t, int>{64, 3}, {128, 4}, {256, 6}, {512, 3}}) {
    for (int block = 0; block < count; ++block) {
      const int64_t stride = block == 0 && middle > 64 ? 2 : 1;
      workload.chain.push_back(
          chain_stage("block", std::make_shared<Bottleneck>(in, middle, stride)));
      in = 4 * middle;
    }
  }
  add("head", nn::Sequential(nn::AdaptiveAvgPool2d(1), nn::Flatten(), nn::Linear(in, 1000)));
  workload.input = at::randn({4, 3, 96, 96});
  return workload;
}

struct ResidualLayers : nn::Module {
  explicit ResidualLayers(int count) {
    for (int i = 0; i < count; ++i) {
      layers.push_back(register_module(std::to_string(i), nn::Linear(128, 128)));
    }
  }
  at::Tensor forward(at::Tensor x) {
    for (auto& layer : layers) {
      x = x + layer(x).relu();
    }
    return x;
  }
  std::vector<nn::Linear> layers;
};

ChainWorkload residual() {
  ChainWorkload workload;
  for (int stage = 0; stage < 100; ++stage) {
    workload.chain.push_back(chain_stage("layers", std::make_shared<ResidualLayers>(10)));
  }
  workload.input = at::randn({256, 128});
  return workload;
}

}  // namespace

ChainWorkload make_chain(const std::string& name) {
  torch::manual_seed(1);
  if (name == "encoder") {
    return encoder(256, 4, 8, 64);
  }
  if (name == "bert-base") {
    return encoder(768, 12, 4, 64);
  }
  if (name == "resnet50") {
    return resnet50();
  }
  LOCKSTEP_CHECK(name == "residual-1000", "no chain is named ", name);
  return residual();
}

}  // namespace lockstep::benchmarks
