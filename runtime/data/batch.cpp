#include <ATen/ATen.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/plain_tensor.h>
#include <lockstep/runtime/batch.h>

namespace lockstep {

at::Tensor stack_samples(const std::vector<at::Tensor>& samples) {
  LOCKSTEP_CHECK_CODE(!samples.empty(), ExitCode::data, "no samples to stack");
  const at::Tensor& first = samples.front();
  for (size_t i = 0; i < samples.size(); ++i) {
    const at::Tensor& sample = samples[i];
    LOCKSTEP_CHECK_CODE(sample.defined() && first.defined(), ExitCode::data, "sample ", i,
                        " of the batch is an undefined tensor");
    const std::string why = detail::why_not_plain(sample);
    LOCKSTEP_CHECK_CODE(why.empty() || sample.is_sparse(), ExitCode::data, "sample ", i,
                        " of the batch ", why, "; or give the sample type a collate()");
    LOCKSTEP_CHECK_CODE(
        sample.sizes() == first.sizes() && sample.scalar_type() == first.scalar_type(),
        ExitCode::data, "samples of one batch differ: number 0 has shape ", first.sizes(), " and ",
        first.scalar_type(), ", number ", i, " has ", sample.sizes(), " and ", sample.scalar_type(),
        "; make them alike in get(), or give the sample type a collate()");
  }
  return at::stack(samples);
}

at::Tensor stack_samples(const std::vector<int64_t>& samples) {
  return at::tensor(samples, at::kLong);
}

at::Tensor stack_samples(const std::vector<float>& samples) {
  return at::tensor(samples, at::kFloat);
}

}  // namespace lockstep
