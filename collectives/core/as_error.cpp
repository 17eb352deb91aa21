#include <c10/util/Exception.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/collectives/impl/as_error.h>
#include <lockstep/collectives/impl/cuda_errors.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <new>
#include <string_view>
#include <system_error>

namespace lockstep::detail {
namespace {

bool says_any(std::string_view text, std::initializer_list<std::string_view> signs) {
  return std::any_of(signs.begin(), signs.end(), [&](std::string_view sign) {
    return text.find(sign) != std::string_view::npos;
  });
}

/// The exit code of an error that is known by its text only.
ExitCode code_of(std::string_view text) {
  if (says_any(
          text,
          {"DefaultCPUAllocator: can't allocate memory",
           "DefaultCPUAllocator: not enough memory",  // of a LibTorch with mimalloc, as for Arm
           "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED",
           "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
           "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"})) {
    return ExitCode::out_of_memory;
  }
  return says_any(text, {"CUBLAS_STATUS_EXECUTION_FAILED", "CUDNN_STATUS_EXECUTION_FAILED"})
             ? ExitCode::peer_lost
             : ExitCode::usage;
}

/// EAGAIN counts as out_of_memory: a thread could not be started, mostly for lack of memory.
ExitCode code_of(const std::system_error& error) {
  return error.code() == std::errc::not_enough_memory ||
                 error.code() == std::errc::resource_unavailable_try_again
             ? ExitCode::out_of_memory
             : ExitCode::usage;
}

/// LibTorch's message; with its backtrace only if LOCKSTEP_BACKTRACE is 1.
std::string text_of(const c10::Error& error) {
  const char* asked = std::getenv("LOCKSTEP_BACKTRACE");
  const bool all = asked != nullptr && std::string_view(asked) == "1";
  return all ? error.what() : error.what_without_backtrace();
}

}  // namespace

Error as_error(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    return error;
  } catch (const c10::OutOfMemoryError& error) {
    return Error(text_of(error), ExitCode::out_of_memory);
  } catch (const c10::AcceleratorError& error) {
    return Error(text_of(error), cuda_error(error.get_error_code()).code);
  } catch (const c10::Error& error) {
    return Error(text_of(error), code_of(error.what_without_backtrace()));
  } catch (const std::bad_alloc& error) {
    return Error(error.what(), ExitCode::out_of_memory);
  } catch (const std::system_error& error) {
    return Error(error.what(), code_of(error));
  } catch (const std::exception& error) {
    return Error(error.what());
  } catch (...) {
    return Error("an exception that is no std::exception");
  }
}

}  // namespace lockstep::detail
