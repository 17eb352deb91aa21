#include <lockstep/amp/impl/cuda_kernels.h>
#include <lockstep/amp/impl/optimizer_list.h>
#include <lockstep/amp/layers/layer_passes.h>
#include <lockstep/collectives/exceptions.h>

namespace lockstep::amp {

namespace {

[[noreturn]] void refuse() {
  throw Error(
      "lockstep was built without CUDA kernels: keep model and optimizer on the CPU, or "
      "build lockstep where nvcc is found");
}

}  // namespace

bool cuda_kernels_available() {
  return false;
}
int cuda_capability(c10::Device) {
  refuse();
}
void advance_on_cuda(ScalerState*, const ScalerRule&, const float*, c10::Device) {
  refuse();
}
void decide_on_cuda(Decision*, const ScalerState*, const DecisionRule&, c10::Device) {
  refuse();
}
void conclude_on_cuda(Decision*, ScalerState*, const DecisionRule&, c10::Device) {
  refuse();
}
void cast_on_cuda(const at::Tensor&, const at::Tensor&, double) {
  refuse();
}
void cast_all_on_cuda(const std::vector<at::Tensor>&, const std::vector<at::Tensor>&, double) {
  refuse();
}
void accumulate_on_cuda(const at::Tensor&, const at::Tensor&) {
  refuse();
}
void measure_on_cuda(const at::Tensor&, const at::Tensor&, const MeasuredParts&) {
  refuse();
}
int64_t measured_sums_on_cuda(const MeasuredParts&) {
  refuse();
}
void measure_part_on_cuda(const at::Tensor&, const MeasuredParts&, int, const at::Tensor&) {
  refuse();
}
void add_measured_on_cuda(const at::Tensor&, const at::Tensor&) {
  refuse();
}
void move_average_on_cuda(const FlatSpan&, const StepState*) {
  refuse();
}
template <typename Update>
void update_on_cuda(const Update&, const std::vector<FlatSpan>&, const StepState*) {
  refuse();
}
#define LOCKSTEP_INSTANTIATE(Update) \
  template void update_on_cuda(const Update&, const std::vector<FlatSpan>&, const StepState*);
LOCKSTEP_FOR_EACH_UPDATE(LOCKSTEP_INSTANTIATE)
void update_on_cuda(const LambUpdate&, const std::vector<FlatSpan>&, const StepState*) {
  refuse();
}
void norm_on_cuda(const NormPass&, const at::Tensor&) {
  refuse();
}
at::Tensor norm_backward_on_cuda(const NormPass&, const at::Tensor&, const at::Tensor&) {
  refuse();
}
void bias_gelu_on_cuda(const at::Tensor&, const at::Tensor&, const at::Tensor&) {
  refuse();
}
at::Tensor bias_gelu_backward_on_cuda(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                      const at::Tensor&) {
  refuse();
}
at::Tensor cross_entropy_on_cuda(const CrossEntropyPass&) {
  refuse();
}
void cross_entropy_backward_on_cuda(const CrossEntropyPass&, const at::Tensor&, const at::Tensor&) {
  refuse();
}

}  // namespace lockstep::amp
