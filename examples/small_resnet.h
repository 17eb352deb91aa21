#pragma once

#include <torch/nn.h>

#include "fashion_mnist_data.h"

/// Two 3x3 convolutions with batch norm, added to their input.
struct ResidualBlockImpl : torch::nn::Module {
  ResidualBlockImpl(int64_t in, int64_t out, int64_t stride)
      : first(register_module("first", convolution(in, out, 3, stride))),
        second(register_module("second", convolution(out, out, 3, 1))),
        first_norm(register_module("first_norm", torch::nn::BatchNorm2d(out))),
        second_norm(register_module("second_norm", torch::nn::BatchNorm2d(out))) {
    if (stride != 1 || in != out) {
      shortcut = register_module("shortcut", torch::nn::Sequential(convolution(in, out, 1, stride),
                                                                   torch::nn::BatchNorm2d(out)));
    }
  }

  torch::Tensor forward(const torch::Tensor& input) {
    const torch::Tensor hidden = torch::relu(first_norm(first(input)));
    const torch::Tensor added = shortcut ? shortcut->forward(input) : input;
    return torch::relu(second_norm(second(hidden)) + added);
  }

  static torch::nn::Conv2d convolution(int64_t in, int64_t out, int64_t size, int64_t stride) {
    return torch::nn::Conv2d(
        torch::nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false));
  }

  torch::nn::Conv2d first, second;
  torch::nn::BatchNorm2d first_norm, second_norm;
  torch::nn::Sequential shortcut{nullptr};
};
TORCH_MODULE(ResidualBlock);

/// A ResNet for images of 28x28 bytes in one channel: 78,000 parameters, 16-32-64 channels.
inline torch::nn::Sequential small_resnet(int64_t classes) {
  return torch::nn::Sequential(
      torch::nn::Functional(normalized), ResidualBlockImpl::convolution(1, 16, 3, 2),
      torch::nn::BatchNorm2d(16), torch::nn::ReLU(), ResidualBlock(16, 16, 1),
      ResidualBlock(16, 32, 2), ResidualBlock(32, 64, 2), torch::nn::AdaptiveAvgPool2d(1),
      torch::nn::Flatten(), torch::nn::Linear(64, classes));
}
