#include <ATen/ATen.h>
#include <lockstep/inputs/labelled_images.h>

namespace lockstep {

std::pair<at::Tensor, int64_t> LabelledImages::get(size_t index) const {
  const auto at = static_cast<int64_t>(index);
  return {images[at].clone(), labels[at].item<int64_t>()};
}

std::pair<at::Tensor, at::Tensor> LabelledImages::get_batch(
    const std::vector<size_t>& indices) const {
  const at::Tensor chosen =
      at::tensor(std::vector<int64_t>(indices.begin(), indices.end()), at::kLong);
  return {images.index_select(0, chosen), labels.index_select(0, chosen)};
}

}  // namespace lockstep
