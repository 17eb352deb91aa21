#include <ATen/ops/_to_copy.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/plain_tensor.h>
#include <lockstep/runtime/loader_options.h>

namespace lockstep {

void LoaderOptions::validate() const {
  LOCKSTEP_CHECK(batch_size() >= 1, "LoaderOptions: batch_size is ", batch_size(),
                 ", expected 1 or more");
  LOCKSTEP_CHECK(workers() >= 0, "LoaderOptions: workers is ", workers(), ", expected 0 or more");
  LOCKSTEP_CHECK(prefetch() >= 0, "LoaderOptions: prefetch is ", prefetch(),
                 ", expected 0 or more");
  LOCKSTEP_CHECK(leaves() >= 0, "LoaderOptions: leaves is ", leaves(), ", expected 0 or more");
  LOCKSTEP_CHECK(epochs() >= 1, "LoaderOptions: epochs is ", epochs(), ", expected 1 or more");
}

void LoaderOptions::validate_for_local_loader() const {
  LOCKSTEP_CHECK(!weights().defined(),
                 "local_loader: weights are those of one dataset that all ranks share; use "
                 "loader(), or give each rank the samples that it shall draw");
  LOCKSTEP_CHECK(leaves() == 0,
                 "local_loader: samples of one rank cannot be dealt to leaves; use loader(), or "
                 "leaves(0)");
}

void LoaderOptions::validate_for_validation_loader(int64_t samples) const {
  LOCKSTEP_CHECK(!shuffle() && !drop_last() && epochs() == 1 && !weights().defined(),
                 "validation_loader: shuffle, drop_last, epochs and weights have no meaning, since "
                 "evaluate() uses each sample once; leave them out");
  LOCKSTEP_CHECK_CODE(samples > 0, ExitCode::data, "validation_loader: the dataset is empty");
}

std::vector<double> LoaderOptions::weights_of(size_t size) const {
  if (!weights().defined()) {
    return {};
  }
  const at::Tensor given = detail::plain(weights().detach(), "LoaderOptions: the tensor weights");
  LOCKSTEP_CHECK(weights().dim() == 1 && weights().size(0) == static_cast<int64_t>(size),
                 "LoaderOptions: weights have the shape ", weights().sizes(),
                 ", expected one for each of the ", size, " samples");
  const at::Tensor host =
      at::_to_copy(given, at::TensorOptions().dtype(at::kDouble).device(at::kCPU)).contiguous();
  const double* first = host.const_data_ptr<double>();
  return {first, first + size};
}

}  // namespace lockstep
