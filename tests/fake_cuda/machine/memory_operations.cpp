#include <cstring>

#include "addresses.h"
#include "elementwise.h"
#include "operations.h"

namespace fake_cuda {

void addresses_of(const Warp& warp, const Address& address, bool is_wide, uint64_t* addresses) {
  const auto lanes_of = [&](int index) { return warp.lanes(index); };
  const uint32_t *low = lanes_of(address.base), *uniform = lanes_of(address.uniform);
  const uint32_t* high = lanes_of(address.base_is_wide ? address.base + 1 : kZero);
  const uint32_t* uniform_high = lanes_of(address.uniform_is_wide ? address.uniform + 1 : kZero);
  const uint64_t keep = is_wide ? ~uint64_t(0) : 0xffffffff;
  for (int lane = 0; lane < kLanes; ++lane) {
    const uint64_t base = uint64_t(high[lane]) << 32 | low[lane];
    const uint64_t more = uint64_t(uniform_high[lane]) << 32 | uniform[lane];
    addresses[lane] = (base * address.scale + more + uint64_t(address.offset)) & keep;
  }
}

namespace operations {
namespace {

enum class Space { kGlobal, kShared, kLocal };

/// Where each lane of the mask finds its bytes.
void find_places(Warp& warp, const Instruction& i, uint32_t mask, bool writes, Space space,
                 char** places) {
  alignas(32) uint64_t addresses[kLanes];
  DeviceMemory& memory = warp.block().memory();
  switch (space) {
    case Space::kGlobal:
      addresses_of(warp, i.address, i.mods[Mod::kE], addresses);
      memory.places_of(warp, i, addresses, mask, writes, places);
      break;
    case Space::kShared:
      addresses_of(warp, i.address, false, addresses);
      memory.shared_places_of(warp, i, addresses, mask, writes, places);
      break;
    case Space::kLocal:
      addresses_of(warp, i.address, false, addresses);
      memory.local_places_of(warp, i, addresses, mask, writes, places);
      break;
  }
}

template <typename T>
T read(const char* place) {
  T value;
  memcpy(&value, place, sizeof value);
  return value;
}

/// All values are read before one is written: an address may lie in the register that is loaded.
template <typename T>
void load_small(Warp& warp, const Instruction& i, uint32_t mask, char** places) {
  Lanes values;
  each_lane(mask, [&](int lane) { values.v[lane] = uint32_t(read<T>(places[lane])); });
  warp.set(i.to, values.v, mask);
}

void load_words(Warp& warp, const Instruction& i, uint32_t mask, char** places) {
  Lanes values;
  for (int word = 0; word * 4 < i.bytes; ++word) {
    each_lane(mask, [&](int lane) { values.v[lane] = read<uint32_t>(places[lane] + word * 4); });
    warp.set(i.to, values.v, mask, word);
  }
}

void load_from(Warp& warp, const Instruction& i, uint32_t mask, Space space) {
  char* places[kLanes];
  find_places(warp, i, mask, false, space, places);
  if (i.bytes >= 4) {
    load_words(warp, i, mask, places);
  } else if (i.mods[Mod::kU8]) {
    load_small<uint8_t>(warp, i, mask, places);
  } else if (i.mods[Mod::kS8]) {
    load_small<int8_t>(warp, i, mask, places);
  } else if (i.mods[Mod::kU16]) {
    load_small<uint16_t>(warp, i, mask, places);
  } else {
    load_small<int16_t>(warp, i, mask, places);
  }
}

void store_to(Warp& warp, const Instruction& i, uint32_t mask, Space space) {
  char* places[kLanes];
  find_places(warp, i, mask, true, space, places);
  if (!i.a.is_register) {
    cannot_execute(warp, i);
  }
  // Of several lanes that write one place, the last one does.
  const int words = (i.bytes + 3) / 4, bytes_of_word = i.bytes < 4 ? i.bytes : 4;
  for (int word = 0; word < words; ++word) {
    const uint32_t* values = warp.raw(i.a, i.a.index == kZero ? 0 : word);
    if (bytes_of_word == 4) {
      each_lane(mask, [&](int lane) { memcpy(places[lane] + word * 4, &values[lane], 4); });
    } else {
      each_lane(mask,
                [&](int lane) { memcpy(places[lane], &values[lane], size_t(bytes_of_word)); });
    }
  }
}

}  // namespace

void load(Warp& warp, const Instruction& i, uint32_t mask) {
  load_from(warp, i, mask, Space::kGlobal);
}

void load_shared(Warp& warp, const Instruction& i, uint32_t mask) {
  load_from(warp, i, mask, Space::kShared);
}

void load_local(Warp& warp, const Instruction& i, uint32_t mask) {
  load_from(warp, i, mask, Space::kLocal);
}

void store(Warp& warp, const Instruction& i, uint32_t mask) {
  store_to(warp, i, mask, Space::kGlobal);
}

void store_shared(Warp& warp, const Instruction& i, uint32_t mask) {
  store_to(warp, i, mask, Space::kShared);
}

void store_local(Warp& warp, const Instruction& i, uint32_t mask) {
  store_to(warp, i, mask, Space::kLocal);
}

/// From a constant bank, at a place that a register gives.
void load_constant(Warp& warp, const Instruction& i, uint32_t mask) {
  alignas(32) uint64_t offsets[kLanes];
  addresses_of(warp, i.address, false, offsets);
  const Launch& launch = warp.block().launch();
  each_lane(mask, [&](int lane) {
    const size_t end = offsets[lane] + uint64_t(i.bytes);
    if (end > launch.constant_bytes(i.address.bank) || offsets[lane] % uint64_t(i.bytes) != 0) {
      throw DeviceFault(cudaErrorIllegalAddress,
                        "a read of constant bank " + std::to_string(i.address.bank) + " at " +
                            std::to_string(offsets[lane]) + ": \"" + i.text + "\" at " +
                            std::to_string(i.pc) + " of the kernel " + launch.program().kernel);
    }
  });
  const auto value_of = [&](int lane, int word) -> uint32_t {
    if ((mask >> lane & 1) == 0) {
      return 0;
    }
    const uint32_t offset = uint32_t(offsets[lane]) + 4 * uint32_t(word);
    const uint32_t value = launch.constant(i.address.bank, offset);
    return i.mods[Mod::kU8]    ? uint8_t(value)
           : i.mods[Mod::kS8]  ? uint32_t(int8_t(value))
           : i.mods[Mod::kU16] ? uint16_t(value)
           : i.mods[Mod::kS16] ? uint32_t(int16_t(value))
                               : value;
  };
  for (int word = 0; word < (i.bytes + 3) / 4; ++word) {
    Lanes values;
    for (int lane = 0; lane < kLanes; ++lane) {
      values.v[lane] = value_of(lane, word);
    }
    warp.set(i.to, values.v, mask, word);
  }
}

/// Whether a generic address lies in shared memory.
void query_space(Warp& warp, const Instruction& i, uint32_t mask) {
  alignas(32) uint64_t addresses[kLanes];
  addresses_of(warp, i.address, i.mods[Mod::kE], addresses);
  const uint32_t is_shared = lanes_where(
      [&](int lane) { return addresses[lane] >= kSharedWindow && addresses[lane] < kLocalWindow; });
  if (!i.mods[Mod::kS] || i.to.index != kZero) {
    cannot_execute(warp, i);
  }
  warp.write(i.to_flag, is_shared, mask);
}

}  // namespace operations
}  // namespace fake_cuda
