#include "fault.h"

#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <mutex>
#include <optional>
#include <string>

namespace lockstep::pretend {
namespace {

constexpr int32_t kNoKernelImage = 209;

std::mutex mutex;
std::optional<Fault> planted;
int64_t operations = 0;

[[noreturn]] void fail(int32_t code) {
  const std::string words = code == kNoKernelImage
                                ? "no kernel image is available for execution on the device"
                                : "an illegal memory access was encountered";
  throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, code,
                              "CUDA error: " + words);
}

bool has_failed_for_good() {
  const std::lock_guard<std::mutex> locked(mutex);
  return planted && planted->code != kNoKernelImage && operations > planted->operation;
}

}  // namespace

void plant(const Fault& fault) {
  const std::lock_guard<std::mutex> locked(mutex);
  planted = fault;
  operations = 0;
}

int64_t mend() {
  {
    const std::lock_guard<std::mutex> locked(mutex);
    planted.reset();
  }
  c10::impl::VirtualGuardImpl(c10::DeviceType::CUDA).synchronizeDevice(0);  // nothing runs there
  return operations;
}

void begin_operation() {
  require_working();
  std::unique_lock<std::mutex> locked(mutex);
  if (planted && operations++ >= planted->operation) {
    const int32_t code = planted->code;
    locked.unlock();
    fail(code);
  }
}

void require_working() {
  if (has_failed_for_good()) {
    std::unique_lock<std::mutex> locked(mutex);
    const int32_t code = planted->code;
    locked.unlock();
    fail(code);
  }
}

}  // namespace lockstep::pretend
