#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/collectives/impl/nccl_api.h>

namespace lockstep::detail {

bool nccl_available() {
  return false;
}

std::shared_ptr<NcclApi> load_nccl() {
  throw Error("lockstep was built without NCCL: " LOCKSTEP_WITHOUT_NCCL
              ", and build again; or use the staged transport",
              ExitCode::environment);
}

}  // namespace lockstep::detail
