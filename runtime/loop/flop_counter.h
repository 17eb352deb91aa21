#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <memory>

namespace lockstep {

/// Counts the floating-point operations (FLOPs) of this thread's matrix products and convolutions,
/// and of the backwards that this thread starts, while the object lives. A multiply and an add are
/// two.
///
///   lockstep::FlopCounter counter;
///   trainer.step([&] {...});
///   std::cout << counter.flops() << " FLOPs in a step of this rank\n";
///
/// Counted are mm, addmm, bmm, baddbmm, convolution, scaled dot product attention, and their
/// backwards, by the rules of torch.utils.flop_counter, attention on the CPU too, and the fused
/// recurrent layers of oneDNN and cuDNN. Element-wise operators and reductions count nothing.
/// What checkpoint() computes again for backward counts nothing, nor does what is run to measure a
/// chain for TrainerOptions::activation_budget, so the sum is that of the model
/// (MFU), not of the hardware (HFU). In a CUDA graph that is launched nothing is seen.
/// Ranks: local. Threads: made, read and destroyed on one thread. Throws Error if another counter
/// lives on this thread.
class FlopCounter {
 public:
  [[nodiscard]] FlopCounter();
  ~FlopCounter();
  FlopCounter(const FlopCounter&) = delete;
  FlopCounter& operator=(const FlopCounter&) = delete;

  /// So far.
  int64_t flops() const;

 private:
  class Count;
  struct Watch;
  std::unique_ptr<Watch> watch_;
};

/// The FLOPs per second of a large square matrix product in `dtype` on `device`: the fastest of a
/// few, with the process's number of threads. A practical peak, below that of the data sheet. Takes
/// some 100 ms. Ranks: local; ranks that share a processor measure their share of it if they call
/// it at the same time. Any thread; random numbers of the program do not change.
double measure_peak_flops(c10::Device device, c10::ScalarType dtype);

}  // namespace lockstep
