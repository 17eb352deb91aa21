#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/inputs/datasets/images/decode.h>

namespace lockstep::detail {

at::Tensor decode_jpeg(std::string_view, const std::string& name) {
  throw Error(c10::str(name,
                       ": is a JPEG image, and lockstep was built without libjpeg-turbo; "
                       "install libjpeg-dev and build lockstep again"),
              ExitCode::environment);
}

}  // namespace lockstep::detail
