#include <c10/util/StringUtil.h>
#include <lockstep/collectives/impl/nccl_api.h>

namespace lockstep::detail {

const char* status_name(NcclStatus status) {
  switch (status) {
    case NcclStatus::success:
      return "success";
    case NcclStatus::in_progress:
      return "in progress";
    case NcclStatus::cuda_error:
      return "CUDA error";
    case NcclStatus::system_error:
      return "system error";
    case NcclStatus::internal_error:
      return "internal error";
    case NcclStatus::invalid_argument:
      return "invalid argument";
    case NcclStatus::invalid_usage:
      return "invalid usage";
    case NcclStatus::remote_error:
      return "remote error";
    case NcclStatus::unknown:
      break;
  }
  return "unknown error";
}

bool nccl_reduces(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Char:
    case c10::ScalarType::Byte:
    case c10::ScalarType::Bool:
    case c10::ScalarType::Int:
    case c10::ScalarType::Long:
    case c10::ScalarType::Half:
    case c10::ScalarType::BFloat16:
    case c10::ScalarType::Float:
    case c10::ScalarType::Double:
      return true;
    default:
      return false;
  }
}

std::string nccl_version_text(int version) {
  return c10::str(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

}  // namespace lockstep::detail
