#include <c10/util/Type.h>
#include <lockstep/checkpointing/activation/chain.h>
#include <lockstep/collectives/check.h>

namespace lockstep::detail {

at::Tensor one_tensor(at::Tensor* output, const std::string& name, const std::type_info& type) {
  LOCKSTEP_CHECK(output != nullptr, "stage '", name, "' returns ", c10::demangle(type.name()),
                 ", where a chain needs one tensor: list blocks that return one as a PlannedChain");
  return std::move(*output);
}

}  // namespace lockstep::detail
