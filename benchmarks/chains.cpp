#include "chains.h"

#include <lockstep/collectives/check.h>
#include <memory>
#include <utility>

#include "blocks.h"

namespace lockstep::benchmarks {
namespace {

namespace nn = torch::nn;

ChainWorkload encoder(int64_t units, int64_t heads, int64_t batch, int64_t length) {
  ChainWorkload workload;
  for (int layer = 0; layer < 12; ++layer) {
    TransformerLayer::Options options;
    options.units = units;
    options.heads = heads;
    options.dropout = 0.1;
    workload.chain.push_back(
        chain_stage("layer " + std::to_string(layer), std::make_shared<TransformerLayer>(options)));
  }
  workload.input = at::randn({batch, length, units});
  return workload;
}

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
