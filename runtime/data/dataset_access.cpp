#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/collectives/impl/as_error.h>
#include <lockstep/runtime/data/impl/dataset_access.h>

namespace lockstep::detail {

size_t refuse_dataset_without_size() {
  throw Error(
      "the dataset has no size(), so it cannot be shared among ranks; "
      "expected one with a fixed number of samples");
}

void rethrow_as_data_error(const std::string& what) {
  const Error error = as_error(std::current_exception());
  throw Error(c10::str(what, " failed: ", error.what()),
              error.code() == ExitCode::usage ? ExitCode::data : error.code());
}

}  // namespace lockstep::detail
