#include <dlfcn.h>
#include <lockstep/collectives/impl/cuda_driver.h>
#include <lockstep/collectives/impl/cuda_errors.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>

namespace lockstep::detail {
namespace {

/// The driver's interface, which is stable, so that no toolkit is needed to build this.
class Library {
 public:
  /// Stays loaded: nothing says that a driver can be unloaded once it is in use.
  explicit Library(const std::string& name)
      : handle_(dlopen(name.c_str(), RTLD_NOW | RTLD_NODELETE)) {}

  bool found() const { return handle_ != nullptr; }
  /// The error of `name`; -1: there is no such function.
  template <typename... Arguments>
  int call(const char* name, Arguments... arguments) const {
    const auto function = handle_ == nullptr
                              ? nullptr
                              : reinterpret_cast<int (*)(Arguments...)>(dlsym(handle_, name));
    return function == nullptr ? -1 : function(arguments...);
  }

 private:
  void* handle_;
};

}  // namespace

CudaDriver ask_cuda_driver(const std::string& library) {
  const Library driver(library);
  CudaDriver answer;
  answer.found = driver.found();
  if (!answer.found) {
    return answer;
  }
  driver.call("cuDriverGetVersion", &answer.version);
  answer.error = driver.call("cuInit", 0U);
  answer.error =
      answer.error != 0 ? answer.error : driver.call("cuDeviceGetCount", &answer.devices);
  if (answer.error < 0) {
    answer.problem = library + " is not NVIDIA's driver";
  } else if (answer.error > 0) {
    answer.devices = 0;
    const char* text = nullptr;
    driver.call("cuGetErrorString", answer.error, &text);
    answer.problem = "NVIDIA's driver reports error " + std::to_string(answer.error) +
                     (text == nullptr ? "" : std::string(": ") + text);
  }
  return answer;
}

std::string advice_for_driver(int error) {
  const std::string known = error > 0 ? cuda_error(error).advice : "";
  return known.empty() ? "nvidia-smi and dmesg say more" : known;
}

std::optional<CudaDevice> cuda_device(int index, const std::string& library) {
  constexpr int major = 75;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
  constexpr int minor = 76;
  const Library driver(library);
  int handle = 0;
  std::array<unsigned char, 16> uuid{};
  std::array<char, 32> bus{};
  CudaDevice device;
  if (driver.call("cuInit", 0U) != 0 || driver.call("cuDeviceGet", &handle, index) != 0 ||
      driver.call("cuDeviceGetUuid_v2", uuid.data(), handle) != 0 ||
      driver.call("cuDeviceGetPCIBusId", bus.data(), static_cast<int>(bus.size()), handle) != 0 ||
      driver.call("cuDeviceGetAttribute", &device.major, major, handle) != 0 ||
      driver.call("cuDeviceGetAttribute", &device.minor, minor, handle) != 0) {
    return std::nullopt;
  }
  device.uuid = "GPU-";
  for (const unsigned char byte : uuid) {
    char digits[3];
    std::snprintf(digits, sizeof digits, "%02x", byte);
    device.uuid += digits;
  }
  device.bus = bus.data();
  std::transform(device.bus.begin(), device.bus.end(), device.bus.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return device;
}

}  // namespace lockstep::detail
