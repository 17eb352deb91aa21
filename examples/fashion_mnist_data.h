#pragma once

#include <lockstep/inputs/idx_file.h>
#include <torch/types.h>

#include <string>
#include <utility>

/// Pixels as numbers of mean 0 and deviation 1 over the dataset.
inline torch::Tensor normalized(const torch::Tensor& pixels) {
  return pixels.to(torch::kFloat).sub_(72.94).div_(90.02);
}

/// Made-up images: class c is a bright bar at column 2 c + 4, in noise.
inline lockstep::LabelledImages bars(int64_t count) {
  const torch::Tensor labels = torch::arange(count) % 10;
  torch::Tensor images = torch::randint(0, 80, {count, 1, 28, 28}, torch::kByte);
  for (int64_t i = 0; i < count; ++i) {
    images[i].narrow(2, 2 * labels[i].item<int64_t>() + 4, 2).fill_(220);
  }
  return {images, labels};
}

/// Training and test images.
inline std::pair<lockstep::LabelledImages, lockstep::LabelledImages> fashion_mnist(
    const std::string& folder, bool synthetic) {
  if (synthetic) {
    return {bars(640), bars(200)};
  }
  return {lockstep::read_idx_images(folder, "train"), lockstep::read_idx_images(folder, "t10k")};
}
