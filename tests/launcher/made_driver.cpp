// NVIDIA's driver, as far as it says how many GPUs there are. MADE_DRIVER: their number, `error N`
// (of cuInit), `count error N`, `crash`, `exit` or `hang`. CUDA_VISIBLE_DEVICES hides some.
#include <unistd.h>

#include <algorithm>
#include <csignal>
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

int cuGetErrorString(int error, const char** text) {
  *text = error == 802 ? "system not yet initialized" : nullptr;
  return error == 802 ? 0 : 1;
}
}
