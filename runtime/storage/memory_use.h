#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

/// Bytes of the arena of one rank: weights; masters that are not the weights themselves; gradients
/// in the wire dtype; fp32 accumulators (only with accumulate > 1 or several losses); moments;
/// averages. With shard_optimizer, masters, moments and averages count only this rank's shards.
struct ArenaMemory {
  int64_t weights = 0, masters = 0, gradients = 0, accumulators = 0, moments = 0;
  int64_t averages = 0;
  int64_t rounds = 0;   // of LocalUpdates: weights at the start of the round, outer momentum
  int64_t on_host = 0;  // of masters, moments and averages: what offload_states keeps there
};

/// Bytes of a device (free, total) and of LibTorch's allocator there: allocated to tensors now,
/// most ever allocated to tensors, and reserved by the allocator.
struct DeviceMemory {
  int64_t free = 0, total = 0;
  int64_t allocated = 0, most_allocated = 0, reserved = 0;
};

/// Memory of `device` as this process sees it. Empty for the CPU.
std::optional<DeviceMemory> device_memory(c10::Device device);

/// Resident bytes of this process, with libraries, and memory that it shares. Empty if the system
/// does not tell.
std::optional<int64_t> resident_memory();

/// Bytes that this process could still take without swapping: of the machine and of its container
/// (cgroup). Without either, the largest number.
int64_t free_host_memory();

/// All of these bytes, on the device and on the host.
int64_t total(const ArenaMemory& arena);

/// One line such as "weights 1.5 GiB, masters 3 GiB, ...". Parts of 0 bytes are left out.
std::string memory_line(const ArenaMemory& arena);

/// Text for the out-of-memory Error of a rank: one line for each part that holds memory, then
/// changes that would need less. `activations`: Trainer::activation_report(), may be empty.
std::string out_of_memory_advice(const ArenaMemory& arena,
                                 const std::optional<DeviceMemory>& device,
                                 const std::string& activations);

}  // namespace lockstep
