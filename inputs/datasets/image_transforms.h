#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace lockstep {

/// Transforms of one image, [channels, height, width]. Their random numbers come from LibTorch's
/// default generator, which in a loader belongs to the sample: an augmented image has the same bits
/// with any number of workers and ranks and after a resume (see Loader).
/// Ranks: local. Threads: any. All throw Error unless the image has 3 dimensions and a pixel, and
/// for arguments out of range.

/// A random window of height x width pixels, from the image with `padding` black pixels (0) on each
/// side.
at::Tensor random_crop(const at::Tensor& image, int64_t height, int64_t width, int64_t padding = 0);

/// With this probability the image mirrored left to right, else the image itself.
at::Tensor random_flip(const at::Tensor& image, double probability = 0.5);

/// (image - mean) / deviation for each channel, in fp32. Images of uint8 are divided by 255 first.
at::Tensor normalized(const at::Tensor& image, const std::vector<double>& mean,
                      const std::vector<double>& deviation);

/// The image with height x width pixels, at most 2^26: bilinear, with smoothing where it becomes
/// smaller. Keeps the dtype (uint8, or floating point).
at::Tensor resized(const at::Tensor& image, int64_t height, int64_t width);

/// The image resized so that its shorter side has `side` pixels; of that the middle square.
at::Tensor square(const at::Tensor& image, int64_t side);

}  // namespace lockstep
