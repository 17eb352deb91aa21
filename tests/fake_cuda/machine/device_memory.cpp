#include "device_memory.h"

#include <algorithm>
#include <cstdio>

#include "../memory/memory.h"
#include "../memory/races.h"
#include "block.h"

namespace fake_cuda {
namespace {

/// Neighbours in memory become one access: checking races costs per access.
void check_races(const uint64_t* addresses, uint32_t mask, int bytes, bool writes) {
  uint64_t begin = 0, end = 0;
  const auto check = [&] {
    if (begin != end) {
      const void* memory = reinterpret_cast<const void*>(begin);
      writes ? write_bytes(memory, end - begin) : read_bytes(memory, end - begin);
    }
  };
  each_lane(mask, [&](int lane) {
    const uint64_t address = addresses[lane];
    if (address < begin || address > end || begin == end) {
      check();
      begin = end = address;
    }
    end = std::max(end, address + uint64_t(bytes));
  });
  check();
}

}  // namespace

DeviceMemory::DeviceMemory(Block& block, const Program& program)
    : block_(block), last_(size_t(program.memory_slots)), checks_races_(races_are_checked()) {}

void DeviceMemory::start() {
  const uint64_t version = memory_version();
  if (version != version_) {
    version_ = version;
    std::fill(last_.begin(), last_.end(), Range());
  }
}

void DeviceMemory::places_of(Warp& warp, const Instruction& i, const uint64_t* addresses,
                             uint32_t mask, bool writes, char** places) {
  if (memory_version() != version_) {
    start();
  }
  const Range range = last_[size_t(i.memory_slot)];
  const uint64_t misaligned = uint64_t(i.bytes - 1);
  const uint64_t most = range.bytes - uint64_t(i.bytes);  // of an address in the range
  // Outside of the range: the difference is negative, as a 64-bit number.
  uint64_t wrong = range.bytes == 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint64_t offset = addresses[lane] - range.begin;
    const uint64_t is_wrong =
        (offset | (most - offset)) >> 63 | uint64_t((addresses[lane] & misaligned) != 0);
    wrong |= mask >> lane & 1 ? is_wrong : 0;
    places[lane] = reinterpret_cast<char*>(addresses[lane]);
  }
  bool is_global = true;
  if (wrong != 0) {
    each_lane(mask, [&](int lane) {
      places[lane] = place_of(warp, i, addresses[lane], lane, writes);
      is_global &= reinterpret_cast<uint64_t>(places[lane]) == addresses[lane];
    });
  }
  if (checks_races_) {
    if (!is_global) {
      each_lane(mask, [&](int lane) {
        if (reinterpret_cast<uint64_t>(places[lane]) != addresses[lane]) {
          mask &= ~(1u << lane);
        }
      });
    }
    check_races(addresses, mask, i.bytes, writes);
  }
}

char* DeviceMemory::place_of(Warp& warp, const Instruction& i, uint64_t address, int lane,
                             bool writes) {
  const uint64_t bytes = uint64_t(i.bytes);
  if (address % bytes != 0) {
    fault(warp, i, address, lane, writes, "global");
  }
  if (address >= kSharedWindow && address - kSharedWindow + bytes <= block_.shared().size()) {
    return block_.shared().data() + (address - kSharedWindow);
  }
  if (address >= kLocalWindow && address - kLocalWindow + bytes <= block_.local_bytes()) {
    return block_.local(warp.first_thread() + lane) + (address - kLocalWindow);
  }
  const Allocation allocation = allocation_of(address);
  if (allocation.bytes < bytes || address - allocation.begin > allocation.bytes - bytes) {
    fault(warp, i, address, lane, writes, "global");
  }
  last_[size_t(i.memory_slot)] = {allocation.begin, allocation.bytes};
  return reinterpret_cast<char*>(address);
}

void DeviceMemory::shared_places_of(Warp& warp, const Instruction& i, const uint64_t* addresses,
                                    uint32_t mask, bool writes, char** places) {
  const uint64_t bytes = uint64_t(i.bytes), size = block_.shared().size();
  char* shared = block_.shared().data();
  each_lane(mask, [&](int lane) {
    const uint64_t address = addresses[lane];
    if (address + bytes > size || address % bytes != 0) {
      fault(warp, i, address, lane, writes, "shared");
    }
    places[lane] = shared + address;
  });
}

void DeviceMemory::local_places_of(Warp& warp, const Instruction& i, const uint64_t* addresses,
                                   uint32_t mask, bool writes, char** places) {
  const uint64_t bytes = uint64_t(i.bytes), size = block_.local_bytes();
  each_lane(mask, [&](int lane) {
    const uint64_t address = addresses[lane];
    if (address + bytes > size || address % bytes != 0) {
      fault(warp, i, address, lane, writes, "local");
    }
    places[lane] = block_.local(warp.first_thread() + lane) + address;
  });
}

void DeviceMemory::fault(Warp& warp, const Instruction& i, uint64_t address, int lane, bool writes,
                         const char* space) const {
  const dim3 size = block_.size(), at = block_.position();
  const unsigned thread = unsigned(warp.first_thread() + lane);
  char text[400];
  snprintf(text, sizeof text,
           "%s of %d bytes of %s memory at %#llx by thread (%u,%u,%u) of block (%u,%u,%u): \"%s\" "
           "at %#x of the kernel ",
           writes ? "write" : "read", i.bytes, space, static_cast<unsigned long long>(address),
           thread % size.x, thread / size.x % size.y, thread / size.x / size.y, at.x, at.y, at.z,
           i.text.c_str(), unsigned(i.pc));
  std::string what = text + block_.program().kernel;
  const bool is_misaligned = address % uint64_t(i.bytes) != 0;
  if (is_misaligned) {
    what = "misaligned " + what;
  } else if (space[0] == 'g') {
    what += "; " + describe_address(address);
  }
  throw DeviceFault(is_misaligned ? cudaErrorMisalignedAddress : cudaErrorIllegalAddress, what);
}

}  // namespace fake_cuda
