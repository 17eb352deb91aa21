#include <ATen/ATen.h>
#include <lockstep/collectives/check.h>
#include <lockstep/inputs/image_transforms.h>

#include <algorithm>
#include <cmath>

namespace lockstep {
namespace {

constexpr int64_t kMostPixels = int64_t{1} << 26;

void require_image(const char* transform, const at::Tensor& image) {
  LOCKSTEP_CHECK(image.defined() && image.dim() == 3 && image.numel() > 0, transform,
                 ": expected an image [channels, height, width], not of shape ",
                 image.defined() ? image.sizes() : at::IntArrayRef());
}

}  // namespace

at::Tensor random_crop(const at::Tensor& image, int64_t height, int64_t width, int64_t padding) {
  require_image("random_crop", image);
  LOCKSTEP_CHECK(padding >= 0, "random_crop: padding is ", padding, ", expected 0 or more");
  const int64_t rows = image.size(1) + 2 * padding;
  const int64_t columns = image.size(2) + 2 * padding;
  LOCKSTEP_CHECK(height >= 1 && width >= 1 && height <= rows && width <= columns,
                 "random_crop: a window of ", height, " x ", width, " pixels of an image of ",
                 image.size(1), " x ", image.size(2), " with padding ", padding);
  const auto top = at::randint(rows - height + 1, {}, at::kLong).item<int64_t>();
  const auto left = at::randint(columns - width + 1, {}, at::kLong).item<int64_t>();
  // The overlap of the window and the image, in rows and columns of the image.
  const int64_t first_row = std::max<int64_t>(top - padding, 0);
  const int64_t last_row = std::min(top - padding + height, image.size(1));
  const int64_t first_column = std::max<int64_t>(left - padding, 0);
  const int64_t last_column = std::min(left - padding + width, image.size(2));
  at::Tensor window = at::zeros({image.size(0), height, width}, image.options());
  if (first_row < last_row && first_column < last_column) {
    const int64_t common_rows = last_row - first_row;
    const int64_t common_columns = last_column - first_column;
    window.narrow(1, first_row - (top - padding), common_rows)
        .narrow(2, first_column - (left - padding), common_columns)
        .copy_(image.narrow(1, first_row, common_rows).narrow(2, first_column, common_columns));
  }
  return window;
}

at::Tensor random_flip(const at::Tensor& image, double probability) {
  require_image("random_flip", image);
  LOCKSTEP_CHECK(probability >= 0.0 && probability <= 1.0, "random_flip: probability is ",
                 probability, ", expected 0 to 1");
  return at::rand({}, at::kDouble).item<double>() < probability ? image.flip(2) : image;
}

at::Tensor normalized(const at::Tensor& image, const std::vector<double>& mean,
                      const std::vector<double>& deviation) {
  require_image("normalized", image);
  const auto channels = static_cast<size_t>(image.size(0));
  LOCKSTEP_CHECK(mean.size() == channels && deviation.size() == channels,
                 "normalized: ", mean.size(), " means and ", deviation.size(),
                 " deviations for an image of ", channels, " channels");
  const double full = image.scalar_type() == at::kByte ? 255.0 : 1.0;
  at::Tensor result = at::empty(image.sizes(), image.options().dtype(at::kFloat));
  for (size_t c = 0; c < channels; ++c) {
    LOCKSTEP_CHECK(std::isfinite(mean[c]) && std::isfinite(deviation[c]) && deviation[c] > 0.0,
                   "normalized: mean ", mean[c], " and deviation ", deviation[c], " of channel ", c,
                   ", expected finite numbers and a deviation > 0");
    result[static_cast<int64_t>(c)]
        .copy_(image[static_cast<int64_t>(c)])
        .sub_(mean[c] * full)
        .div_(deviation[c] * full);
  }
  return result;
}

at::Tensor resized(const at::Tensor& image, int64_t height, int64_t width) {
  require_image("resized", image);
  LOCKSTEP_CHECK(height >= 1 && width >= 1 && height <= kMostPixels / width, "resized: to ", height,
                 " x ", width, " pixels, expected 1 to ", kMostPixels, " in all");
  LOCKSTEP_CHECK(image.is_floating_point() || image.scalar_type() == at::kByte,
                 "resized: an image of ", image.scalar_type(),
                 ", expected uint8 or floating point; convert it with to(torch::kFloat)");
  if (image.size(1) == height && image.size(2) == width) {
    return image;
  }
  const at::ScalarType dtype = image.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor wide = at::_upsample_bilinear2d_aa(image.unsqueeze(0).to(dtype), {height, width},
                                                      /*align_corners=*/false)
                              .squeeze(0);
  return (image.is_floating_point() ? wide : wide.round_().clamp_(0, 255)).to(image.scalar_type());
}

at::Tensor square(const at::Tensor& image, int64_t side) {
  require_image("square", image);
  LOCKSTEP_CHECK(side >= 1 && side <= 1 << 16, "square: of ", side, " pixels, expected 1 to ",
                 1 << 16);
  const int64_t shorter = std::min(image.size(1), image.size(2));
  const at::Tensor small =
      resized(image, image.size(1) * side / shorter, image.size(2) * side / shorter);
  return small.narrow(1, (small.size(1) - side) / 2, side)
      .narrow(2, (small.size(2) - side) / 2, side)
      .contiguous();
}

}  // namespace lockstep
