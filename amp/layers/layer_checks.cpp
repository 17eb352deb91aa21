#include <lockstep/amp/layers/layer_checks.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/plain_tensor.h>

namespace lockstep::amp {

bool is_layer_dtype(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kHalf || dtype == at::kBFloat16;
}

std::string described(const at::Tensor& tensor) {
  return tensor.defined()
             ? c10::str(tensor.scalar_type(), tensor.sizes(), " on ", tensor.device().str())
             : "no tensor";
}

void check_plain(const char* layer, const at::Tensor& tensor) {
  if (tensor.defined() && !tensor.is_meta()) {
    const std::string why = detail::why_not_plain(tensor);
    LOCKSTEP_CHECK(why.empty(), layer, ": a tensor ", why);
  }
}

at::Tensor in_memory(const at::Tensor& tensor) {
  return detail::applied(tensor).contiguous();
}

void check_targets(const char* layer, const at::Tensor& targets, const at::Tensor& beside,
                   int64_t rows, int64_t classes, double smoothing, int64_t ignore_index) {
  check_plain(layer, targets);
  LOCKSTEP_CHECK(targets.defined() && targets.scalar_type() == at::kLong && targets.dim() == 1 &&
                     targets.size(0) == rows && targets.is_contiguous() &&
                     !detail::is_lazy(targets) && targets.device() == beside.device(),
                 layer, ": the targets must be a contiguous int64 vector of ", rows,
                 " elements on ", beside.device().str(), ", found ", described(targets));
  LOCKSTEP_CHECK(smoothing >= 0.0 && smoothing < 1.0, layer, ": label_smoothing is ", smoothing,
                 ", it must be at least 0 and below 1");
  if (!beside.is_cpu()) {
    return;
  }
  const auto* target = targets.const_data_ptr<int64_t>();
  for (int64_t row = 0; row < rows; ++row) {
    LOCKSTEP_CHECK(target[row] == ignore_index || (target[row] >= 0 && target[row] < classes),
                   layer, ": the target of row ", row, " is ", target[row],
                   ", there are classes 0 to ", classes - 1);
  }
}

}  // namespace lockstep::amp
