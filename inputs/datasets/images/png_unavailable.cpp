#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/inputs/datasets/images/decode.h>

namespace lockstep::detail {

at::Tensor decode_png(std::string_view, const std::string& name) {
  throw Error(c10::str(name,
                       ": is a PNG image, and lockstep was built without libpng; install "
                       "libpng-dev and build lockstep again"),
              ExitCode::environment);
}

}  // namespace lockstep::detail
