#pragma once

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>

namespace lockstep::testing {

/// The memory at an address, as the kernel sees it.
struct Mapped {
  std::string file;        // device and inode
  int64_t anonymous = -1;  // kB of copies that belong to this process alone
};

inline Mapped mapped_at(const void* address) {
  const auto wanted = reinterpret_cast<uintptr_t>(address);
  std::ifstream maps("/proc/self/smaps");
  Mapped found;
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::string first, permissions, offset, device, inode;
    words >> first;
    if (const size_t dash = first.find('-'); dash != std::string::npos && first.back() != ':') {
      const uintptr_t begin = std::stoull(first.substr(0, dash), nullptr, 16);
      const uintptr_t end = std::stoull(first.substr(dash + 1), nullptr, 16);
      inside = begin <= wanted && wanted < end;
      words >> permissions >> offset >> device >> inode;
      found.file = inside ? device + " " + inode : found.file;
    } else if (inside && first == "Anonymous:") {
      words >> found.anonymous;
    }
  }
  return found;
}

}  // namespace lockstep::testing
