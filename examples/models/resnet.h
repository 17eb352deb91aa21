#pragma once

#include <torch/nn.h>

/// The sizes of a ResNet.
struct ResNetSize {
  int64_t depth = 18;  // 18, 34, 50, 101 or 152
  int64_t classes = 10;
  int64_t width = 64;         // channels of the first stage
  bool large_images = false;  // as for ImageNet: begins with a 7x7 convolution and a pool, each of
                              // stride 2; else with a 3x3 convolution
};

/// Two 3x3 convolutions, or a 3x3 between two 1x1 (a bottleneck), added to their input.
struct ResNetBlockImpl : torch::nn::Module {
  ResNetBlockImpl(int64_t in, int64_t width, int64_t stride, bool bottleneck);
  torch::Tensor forward(const torch::Tensor& input);

  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr}, conv3{nullptr};
  torch::nn::BatchNorm2d bn1{nullptr}, bn2{nullptr}, bn3{nullptr};
  torch::nn::Sequential downsample{nullptr};
};
TORCH_MODULE(ResNetBlock);

/// Classifies images (He et al., 2016). Names and shapes of the weights, and what is computed, are
/// those of torchvision.models.resnet18 to resnet152, so weights of either can be loaded into the
/// other; with small images the first convolution has other sizes than torchvision's.
struct ResNetImpl : torch::nn::Module {
  /// Throws lockstep::Error for another depth.
  explicit ResNetImpl(const ResNetSize& size);

  /// images: [batch, 3, height, width]. Returns scores, [batch, classes].
  torch::Tensor forward(const torch::Tensor& images);

  /// From now on the batch norms keep their statistics, weights and biases, also in train mode: for
  /// fine-tuning. Call it before a Trainer is made.
  void freeze_norms();
  void train(bool on = true) override;

  torch::nn::Conv2d conv1{nullptr};
  torch::nn::BatchNorm2d bn1{nullptr};
  torch::nn::Sequential layer1, layer2, layer3, layer4;
  torch::nn::Linear fc{nullptr};
  bool large_images, norms_frozen = false;
};
TORCH_MODULE(ResNet);
