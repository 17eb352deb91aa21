#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/runtime/step/impl/step_graph.h>

namespace lockstep::detail {

std::unique_ptr<StepGraph> make_cuda_graph(c10::Device device) {
  throw Error(c10::str("cuda_graph on ", device,
                       ": this build has no CUDA kernels (LOCKSTEP_CUDA); build it where there is "
                       "an nvcc, or use cuda_graph(false)"),
              ExitCode::environment);
}

}  // namespace lockstep::detail
