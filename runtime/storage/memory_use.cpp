#include <c10/core/CachingDeviceAllocator.h>
#include <lockstep/checkpointing/activation/impl/activation_budget.h>
#include <lockstep/runtime/memory_use.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <limits>
#include <utility>

namespace lockstep {
namespace {

using NamedBytes = std::pair<const char*, int64_t>;

std::array<NamedBytes, 7> named(const ArenaMemory& arena) {
  return {{{"weights", arena.weights},
           {"masters", arena.masters},
           {"gradients", arena.gradients},
           {"accumulators", arena.accumulators},
           {"moments", arena.moments},
           {"averages", arena.averages},
           {"rounds", arena.rounds}}};
}

}  // namespace

int64_t total(const ArenaMemory& arena) {
  int64_t bytes = 0;
  for (const NamedBytes& part : named(arena)) {
    bytes += part.second;
  }
  return bytes;
}

std::optional<DeviceMemory> device_memory(c10::Device device) {
  if (device.is_cpu()) {
    return std::nullopt;
  }
  constexpr size_t all = 0;  // StatType::AGGREGATE
  c10::DeviceAllocator* allocator = c10::getDeviceAllocator(device.type());
  const auto [free, total] = allocator->getMemoryInfo(device.index());
  const auto stats = allocator->getDeviceStats(device.index());
  DeviceMemory memory;
  memory.free = static_cast<int64_t>(free);
  memory.total = static_cast<int64_t>(total);
  memory.allocated = stats.allocated_bytes[all].current;
  memory.most_allocated = stats.allocated_bytes[all].peak;
  memory.reserved = stats.reserved_bytes[all].current;
  return memory;
}

std::optional<int64_t> resident_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    long long kib = 0;
    if (std::sscanf(line.c_str(), "VmRSS: %lld kB", &kib) == 1) {
      return kib * 1024;
    }
  }
  return std::nullopt;
}

int64_t free_host_memory() {
  const auto number_in = [](const char* path) -> std::optional<int64_t> {
    long long number = 0;
    return std::ifstream(path) >> number ? std::optional<int64_t>(number) : std::nullopt;
  };
  int64_t free = std::numeric_limits<int64_t>::max();
  std::ifstream info("/proc/meminfo");
  for (std::string line; std::getline(info, line);) {
    long long kib = 0;
    if (std::sscanf(line.c_str(), "MemAvailable: %lld kB", &kib) == 1) {
      free = kib * 1024;
    }
  }
  const auto most = number_in("/sys/fs/cgroup/memory.max");  // "max" where there is no limit
  const auto used = number_in("/sys/fs/cgroup/memory.current");
  return most && used ? std::min(free, std::max<int64_t>(0, *most - *used)) : free;
}

std::string memory_line(const ArenaMemory& arena) {
  std::string line;
  for (const auto& [name, bytes] : named(arena)) {
    if (bytes > 0) {
      line += (line.empty() ? "" : ", ") + std::string(name) + " " + bytes_text(bytes);
    }
  }
  return arena.on_host > 0 ? line + " (on the host: " + bytes_text(arena.on_host) + ")" : line;
}

std::string out_of_memory_advice(const ArenaMemory& arena,
                                 const std::optional<DeviceMemory>& device,
                                 const std::string& activations) {
  const std::string line = memory_line(arena);
  std::string text =
      "  lockstep holds " + (line.empty() ? "nothing yet" : bytes_text(total(arena)) + ": " + line);
  if (device.has_value()) {
    text += "\n  the device has " + bytes_text(device->free) + " free of " +
            bytes_text(device->total) + "; LibTorch's tensors have " +
            bytes_text(device->allocated) + " now, had " + bytes_text(device->most_allocated) +
            " at most, it holds " + bytes_text(device->reserved);
  }
  if (!activations.empty()) {
    text += "\n  " + activations;
  }
  return text +
         "\n  nothing was updated. What needs less: smaller micro-batches and more of them "
         "(accumulate), an activation_budget, shard_optimizer(true), moments(MomentFormat::bf16), "
         "Precision::O2()" +
         (device.has_value() ? ", offload_states(true)" : "");
}

}  // namespace lockstep
