#include <lockstep/collectives/core/as_error.h>
#include <lockstep/runtime/dataset_access.h>

namespace lockstep::detail {

void rethrow_as_data_error(const std::string& what) {
  const Error error = as_error(std::current_exception());
  throw Error(c10::str(what, " failed: ", error.what()),
              error.code() == ExitCode::usage ? ExitCode::data : error.code());
}

}  // namespace lockstep::detail
