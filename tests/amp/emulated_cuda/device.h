#pragma once

#include <cstdint>
#include <functional>

namespace lockstep::emulated_cuda {

struct Launch;  // cuda_runtime.h

/// A CUDA device made of the host's stacks: it runs the .cu files' own kernels with the launches'
/// own shapes, one block after another on the thread that launches, each thread of a block until it
/// waits. A launch gives an error, which names block, thread and line, for what a device does not
/// allow or leaves undefined:
///   a grid or a block without threads or beyond CUDA's limits, arguments beyond 4 KB;
///   __syncthreads() that a thread of the block never reaches or reaches at another line;
///   __shfl_xor_sync() by or from a lane that its mask does not name, or with a mask that names
///   lanes that do not come.
/// Shared memory holds what the last block left there. Launches from several host threads run one
/// after another.
enum class Order : uint8_t { forward, backward, shuffled };

struct Device {
  int processors = 2;
  int capability = 90;
  Order order = Order::forward;  // of a grid's blocks, and of a block's threads
  int blocks_at_once = 8;        // on one processor, of any kernel
  int number = 0;                // of the only device
  int occupancy_questions = 0;   // that it has answered
  /// Called before and after each launch, where not empty.
  std::function<void(const Launch&)> before = {};
  std::function<void(const Launch&)> after = {};
};

/// What the next launches run on.
Device& device();

}  // namespace lockstep::emulated_cuda
