#pragma once

#include <cstddef>
#include <cstdint>

/// Memory of a device is closed to the host, as on a real machine: only with FAKE_CUDA_RACES=1.
/// It opens, an allocation at a time, when the device's thread touches it.
namespace fake_cuda {

/// Call when the device's thread has nothing to do. Until then what it has opened stays open: an
/// access of the host may pass, but the device's thread pays for its faults only once.
void close_device_memory();

/// Memory.cpp calls these for what it gives out and takes back.
void guard_device_memory(const void* memory, size_t bytes);
void forget_device_memory(const void* memory);
/// For the handler of SIGSEGV in a thread that works for the device: whether the address lies in
/// memory of a device, which is open now.
bool open_device_memory(uintptr_t address);

}  // namespace fake_cuda
