#include <cstdio>
#include <cstdlib>

#include "work.h"

namespace fake_cuda {

const char* setting(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

long setting(const char* name, long otherwise) {
  const char* value = setting(name, static_cast<const char*>(nullptr));
  if (value == nullptr) {
    return otherwise;
  }
  char* end = nullptr;
  const long number = std::strtol(value, &end, 10);
  if (*end != '\0') {
    std::fprintf(stderr, "fake cuda: %s=%s is not a number\n", name, value);
    std::abort();
  }
  return number;
}

}  // namespace fake_cuda
