#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>

namespace lockstep {

/// Bytes of the arena: weights, masters that are not the weights, gradients in the wire dtype, fp32
/// accumulators (accumulate > 1 only), moments, averages, residuals of error feedback; with
/// shard_optimizer this rank's shares.
struct ArenaMemory {
  int64_t weights = 0, masters = 0, gradients = 0, accumulators = 0, moments = 0;
  int64_t averages = 0, residuals = 0;
};

/// Bytes of a device, and of LibTorch's allocator there: what tensors have, had at most, and what
/// it holds for them.
struct DeviceMemory {
  int64_t free = 0, total = 0;
  int64_t allocated = 0, most_allocated = 0, reserved = 0;
};

/// Of this process's device; none for the CPU.
std::optional<DeviceMemory> device_memory(c10::Device device);

/// "weights 1.5 GiB, masters 3 GiB, ...": what there is none of is left out.
std::string memory_line(const ArenaMemory& arena);

/// What holds the memory of a rank that got no more, a line for each, then what would need less.
/// `activations`: Trainer::activation_report(), may be empty.
std::string out_of_memory_advice(const ArenaMemory& arena,
                                 const std::optional<DeviceMemory>& device,
                                 const std::string& activations);

}  // namespace lockstep
