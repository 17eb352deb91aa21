// NVIDIA's driver, as far as it says which GPUs there are; CUDA's runtime can load it, too, and ask
// until there is an error. MADE_DRIVER: their number, `error N` (of cuInit), `count error N`,
// `crash`, `exit` or `hang`. CUDA_VISIBLE_DEVICES hides some. MADE_DRIVER_VERSION: not 13000.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>

namespace {

std::string made() {
  const char* text = std::getenv("MADE_DRIVER");
  return text == nullptr ? "" : text;
}

int error_after(const std::string& word) {
  return made().rfind(word, 0) == 0 ? std::atoi(made().c_str() + word.size()) : 0;
}

}  // namespace

extern "C" {

int cuInit(unsigned /*flags*/) {
  if (made() == "crash") {
    raise(SIGSEGV);
  }
  if (made() == "exit") {
    _exit(3);
  }
  while (made() == "hang") {
    pause();
  }
  return error_after("error ");
}

int cuDeviceGetCount(int* count) {
  *count = std::atoi(made().c_str());
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    std::istringstream list(visible);
    int listed = 0;
    for (std::string device;
         std::getline(list, device, ',') && !device.empty() && device.front() != '-';) {
      ++listed;
    }
    *count = std::min(*count, listed);
  }
  return error_after("count error ");
}

int cuDriverGetVersion(int* version) {
  const char* text = std::getenv("MADE_DRIVER_VERSION");
  *version = text == nullptr ? 13000 : std::atoi(text);
  return 0;
}

int cuDeviceGet(int* device, int index) {
  int count = 0;
  cuDeviceGetCount(&count);
  *device = index;
  return index < count ? 0 : 101;
}

int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
  std::fill(uuid, uuid + 16, static_cast<unsigned char>(0xa0 + device));
  return 0;
}

int cuDeviceGetPCIBusId(char* bus, int size, int device) {
  std::snprintf(bus, static_cast<size_t>(size), "0000:C%d:00.0", device / 2);  // two slices a GPU
  return 0;
}

int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == 75 ? 9 : device;
  return attribute == 75 || attribute == 76 ? 0 : 1;
}

int cuGetExportTable(const void** /*table*/, const void* /*id*/) {
  return 999;
}

int cuGetProcAddress_v2(const char* name, void** function, int /*version*/, uint64_t /*flags*/,
                        int* status) {
  static const auto unknown = +[] { return 999; };
  Dl_info own;
  dladdr(reinterpret_cast<void*>(&cuGetExportTable), &own);
  void* const self = dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  *function = dlsym(self, name);
  if (std::string(name) == "cuGetProcAddress") {
    *function = reinterpret_cast<void*>(&cuGetProcAddress_v2);
  }
  *function = *function == nullptr ? reinterpret_cast<void*>(unknown) : *function;
  if (status != nullptr) {
    *status = 0;
  }
  return 0;
}

int cuGetProcAddress(const char* name, void** function, int version, uint64_t flags) {
  return cuGetProcAddress_v2(name, function, version, flags, nullptr);
}

int cuGetErrorString(int error, const char** text) {
  *text = error == 802 ? "system not yet initialized" : nullptr;
  return error == 802 ? 0 : 1;
}
}
