#include "models/resnet.h"

#include <lockstep/collectives/check.h>
#include <array>
#include <map>

namespace {

namespace nn = torch::nn;

nn::Conv2d convolution(int64_t in, int64_t out, int64_t size, int64_t stride) {
  nn::Conv2d layer(nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false));
  nn::init::kaiming_normal_(layer->weight, 0.0, torch::kFanOut, torch::kReLU);
  return layer;
}

}  // namespace

ResNetBlockImpl::ResNetBlockImpl(int64_t in, int64_t width, int64_t stride, bool bottleneck) {
  const int64_t out = bottleneck ? 4 * width : width;
  conv1 = register_module(
      "conv1", bottleneck ? convolution(in, width, 1, 1) : convolution(in, width, 3, stride));
  bn1 = register_module("bn1", nn::BatchNorm2d(width));
  conv2 = register_module("conv2", convolution(width, width, 3, bottleneck ? stride : 1));
  bn2 = register_module("bn2", nn::BatchNorm2d(width));
  if (bottleneck) {
    conv3 = register_module("conv3", convolution(width, out, 1, 1));
    bn3 = register_module("bn3", nn::BatchNorm2d(out));
  }
  if (stride != 1 || in != out) {
    downsample = register_module(
        "downsample", nn::Sequential(convolution(in, out, 1, stride), nn::BatchNorm2d(out)));
  }
}

torch::Tensor ResNetBlockImpl::forward(const torch::Tensor& input) {
  torch::Tensor hidden = bn2(conv2(torch::relu(bn1(conv1(input)))));
  if (conv3) {
    hidden = bn3(conv3(torch::relu(hidden)));
  }
  return torch::relu(hidden + (downsample ? downsample->forward(input) : input));
}

ResNetImpl::ResNetImpl(const ResNetSize& size) : large_images(size.large_images) {
  static const std::map<int64_t, std::array<int64_t, 4>> kBlocks = {{18, {2, 2, 2, 2}},
                                                                    {34, {3, 4, 6, 3}},
                                                                    {50, {3, 4, 6, 3}},
                                                                    {101, {3, 4, 23, 3}},
                                                                    {152, {3, 8, 36, 3}}};
  const auto blocks = kBlocks.find(size.depth);
  LOCKSTEP_CHECK(blocks != kBlocks.end(), "ResNet: the depth is ", size.depth,
                 ", expected 18, 34, 50, 101 or 152");
  conv1 = register_module(
      "conv1", large_images ? convolution(3, size.width, 7, 2) : convolution(3, size.width, 3, 1));
  bn1 = register_module("bn1", nn::BatchNorm2d(size.width));
  const bool bottleneck = size.depth >= 50;
  int64_t in = size.width;
  const std::array<nn::Sequential*, 4> layers = {&layer1, &layer2, &layer3, &layer4};
  for (size_t stage = 0; stage < layers.size(); ++stage) {
    const int64_t width = size.width << stage;
    for (int64_t block = 0; block < blocks->second[stage]; ++block) {
      (*layers[stage])
          ->push_back(ResNetBlock(in, width, block == 0 && stage > 0 ? 2 : 1, bottleneck));
      in = bottleneck ? 4 * width : width;
    }
    register_module("layer" + std::to_string(stage + 1), *layers[stage]);
  }
  fc = register_module("fc", nn::Linear(in, size.classes));
}

torch::Tensor ResNetImpl::forward(const torch::Tensor& images) {
  torch::Tensor hidden = torch::relu(bn1(conv1(images)));
  if (large_images) {
    hidden = torch::max_pool2d(hidden, 3, 2, 1);
  }
  for (nn::Sequential* layer : {&layer1, &layer2, &layer3, &layer4}) {
    hidden = (*layer)->forward(hidden);
  }
  return fc(torch::adaptive_avg_pool2d(hidden, {1, 1}).flatten(1));
}

void ResNetImpl::freeze_norms() {
  norms_frozen = true;
  train(is_training());
}

void ResNetImpl::train(bool on) {
  Module::train(on);
  if (norms_frozen) {
    for (const auto& module : modules()) {
      if (auto* norm = module->as<nn::BatchNorm2d>()) {
        norm->eval();
        norm->weight.requires_grad_(false);
        norm->bias.requires_grad_(false);
      }
    }
  }
}
