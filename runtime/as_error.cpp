#include <c10/util/Exception.h>
#include <lockstep/runtime/as_error.h>

#include <new>
#include <string_view>

namespace lockstep {
namespace {

// Of the CUDA runtime.
constexpr int32_t cuda_memory_allocation = 2;
constexpr int32_t cuda_assert = 710;
constexpr int32_t first_capture_error = 900;  // what a stream does not do while it is recorded
constexpr int32_t last_capture_error = 908;

/// Allocators whose failure has no type of its own.
bool says_out_of_memory(std::string_view text) {
  for (const std::string_view sign : {"DefaultCPUAllocator: can't allocate memory",
                                      "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED"}) {
    if (text.find(sign) != std::string_view::npos) {
      return true;
    }
  }
  return false;
}

ExitCode code_of(const c10::AcceleratorError& error) {
  const int32_t code = error.get_error_code();
  if (code >= first_capture_error && code <= last_capture_error) {
    return ExitCode::usage;
  }
  switch (code) {
    case cuda_memory_allocation:
      return ExitCode::out_of_memory;
    case cuda_assert:
      return ExitCode::usage;
    default:
      return ExitCode::peer_lost;
  }
}

}  // namespace

Error as_error(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    return error;
  } catch (const c10::OutOfMemoryError& error) {
    return Error(error.what_without_backtrace(), ExitCode::out_of_memory);
  } catch (const c10::AcceleratorError& error) {
    return Error(error.what_without_backtrace(), code_of(error));
  } catch (const c10::Error& error) {
    const std::string text = error.what_without_backtrace();
    return Error(text, says_out_of_memory(text) ? ExitCode::out_of_memory : ExitCode::usage);
  } catch (const std::bad_alloc& error) {
    return Error(error.what(), ExitCode::out_of_memory);
  } catch (const std::exception& error) {
    return Error(error.what());
  } catch (...) {
    return Error("an exception that is no std::exception");
  }
}

}  // namespace lockstep
