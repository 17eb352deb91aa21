#pragma once

#include <lockstep/collectives/check.h>
#include <lockstep/inputs/cifar_file.h>
#include <torch/types.h>

#include <string>
#include <utility>
#include <vector>

/// Images of CIFAR as numbers of mean 0 and deviation 1 over CIFAR-10.
inline torch::Tensor normalized(const torch::Tensor& pixels) {
  const auto options = pixels.options().dtype(torch::kFloat);
  const torch::Tensor mean = torch::tensor({125.3, 123.0, 113.9}, options).view({3, 1, 1});
  const torch::Tensor deviation = torch::tensor({63.0, 62.1, 66.7}, options).view({3, 1, 1});
  return (pixels.to(torch::kFloat) - mean) / deviation;
}

/// Images for training: each is moved by up to 4 pixels and mirrored at random, in another way in
/// each epoch. The random numbers are those of the sample (SampleRandom).
struct AugmentedImages {
  lockstep::LabelledImages images;
  bool augment = true;

  size_t size() const { return images.size(); }
  std::pair<torch::Tensor, torch::Tensor> get(size_t index) const {
    const auto i = static_cast<int64_t>(index);
    torch::Tensor image = images.images[i];
    if (augment) {
      const torch::Tensor draw = torch::randint(0, 9, {3}, torch::kLong);
      const auto* at = draw.const_data_ptr<int64_t>();
      image = torch::constant_pad_nd(image, {4, 4, 4, 4})
                  .narrow(1, at[0], image.size(1))
                  .narrow(2, at[1], image.size(2));
      image = torch::rand({1}).item<float>() < 0.5F ? image.flip(2) : image.contiguous();
    }
    return {image, images.labels[i]};
  }
};

/// Training and test images: files of the binary version of CIFAR-10 or, with 100 classes,
/// CIFAR-100.
inline std::pair<lockstep::LabelledImages, lockstep::LabelledImages> read_cifar(
    const std::vector<std::string>& train, const std::vector<std::string>& test, int64_t classes) {
  LOCKSTEP_CHECK_CODE(!train.empty() && !test.empty(), lockstep::ExitCode::data,
                      "no images: get the binary version of CIFAR-10 or CIFAR-100 from "
                      "https://www.cs.toronto.edu/~kriz/cifar.html and name its files with --train "
                      "and --test, or use --synthetic");
  const auto read = [&](const std::vector<std::string>& paths) {
    return classes == 100 ? lockstep::read_cifar100(paths) : lockstep::read_cifar10(paths);
  };
  return {read(train), read(test)};
}

/// Made-up images in noise: a class is a colour, of the whole image or of its upper part.
inline lockstep::LabelledImages coloured_images(int64_t count, int64_t classes) {
  const torch::Tensor labels = torch::arange(count) % classes;
  torch::Tensor images = torch::randint(0, 100, {count, 3, 32, 32}, torch::kByte);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t colour = i % classes % 7 + 1, parts = i % classes / 7 + 1;
    for (int64_t channel = 0; channel < 3; ++channel) {
      if ((colour >> channel & 1) != 0) {
        images[i][channel].narrow(0, 0, 32 / parts).fill_(230);
      }
    }
  }
  return {images, labels};
}
