#pragma once

#include "cuda_runtime.h"
#include "stacks.h"

#include <string>
#include <vector>

namespace lockstep::emulated_cuda {

/// Runs one block at a time: each thread on a stack of its own until it waits, in turns.
class Multiprocessor {
 public:
  static Multiprocessor& only();

  /// Returns what went wrong in a block, or nothing.
  std::string run_grid(const Launch& launch, Order order);

  // By the running thread.
  void barrier(Place place);
  uint64_t exchange(unsigned mask, uint64_t value, int step, Place place);

 private:
  Multiprocessor();

  enum class State : uint8_t { ready, at_barrier, at_exchange, done };
  struct Thread {
    uint3 index{};
    State state = State::ready;
    size_t number = 0;
    unsigned round = 0;  // the barrier that it waits at
    Place place;         // where it waits, and for what
    unsigned mask = 0;
    int step = 0;
    uint64_t value = 0;
    uint64_t received = 0;
  };

  struct Fiber {
    void* top;       // of its stack, while it does not run
    void* observed;  // what the sanitizer holds for it
  };

  void run_block();
  void begin_block();
  static void run_threads();
  bool goes_on(const Thread& thread) const;
  Thread* next();
  Fiber& fiber_of(const Thread& thread);
  void switch_to(Thread* thread, void** from);
  void wait();
  /// Ends the launch.
  [[noreturn]] void fail(std::string&& problem);
  bool arrives_last(const Thread& self, int own);
  std::string describe(const Thread& thread) const;
  std::string describe_stuck() const;
  Thread* lane(const Thread& self, int lane);

  const Launch* launch_ = nullptr;
  /// With a sanitizer every other block has other fibers, so that what one block's threads know of
  /// each other orders nothing for the threads of the next.
  const size_t fibers_of_a_thread_;
  size_t turn_of_fibers_ = 0;
  Stacks stacks_;
  std::vector<Fiber> fibers_;
  std::vector<Thread> threads_;
  std::vector<int64_t> order_;  // in which the threads have their turns
  size_t turn_ = 0;
  Thread* running_ = nullptr;
  void* own_top_ = nullptr;
  void* own_observed_ = nullptr;
  std::string problem_;
  size_t at_barrier_ = 0;
  unsigned barriers_ = 0;
  Place barrier_place_;
  // Channels of the sanitizer.
  char begun_ = 0;
  char ended_ = 0;
  std::vector<char> passed_;  // of every other barrier
};

}  // namespace lockstep::emulated_cuda
