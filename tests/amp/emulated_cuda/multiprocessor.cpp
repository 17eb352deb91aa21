#include "multiprocessor.h"

#include "races.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <sstream>
#include <thread>

namespace lockstep::emulated_cuda {

uint3 thread_index{};
uint3 block_index{};
dim3 block_size;
dim3 grid_size;

namespace {

constexpr int kWarp = 32;
constexpr size_t kMostThreads = 1024;

int64_t count_of(const dim3& size) {
  return int64_t{size.x} * size.y * size.z;
}

uint3 index_of(int64_t number, const dim3& size) {
  return {static_cast<unsigned>(number % size.x), static_cast<unsigned>(number / size.x % size.y),
          static_cast<unsigned>(number / size.x / size.y)};
}

std::vector<int64_t> numbers(int64_t count, Order order) {
  std::vector<int64_t> all(static_cast<size_t>(count));
  std::iota(all.begin(), all.end(), 0);
  if (order == Order::backward) {
    std::reverse(all.begin(), all.end());
  } else if (order == Order::shuffled) {
    std::shuffle(all.begin(), all.end(), std::mt19937_64(static_cast<uint64_t>(count)));
  }
  return all;
}

std::ostream& operator<<(std::ostream& out, const uint3& index) {
  return out << "(" << index.x << ", " << index.y << ", " << index.z << ")";
}

struct Mask {
  unsigned bits;
};

std::ostream& operator<<(std::ostream& out, const Mask& mask) {
  return out << "0x" << std::hex << mask.bits << std::dec;
}

std::ostream& operator<<(std::ostream& out, const Place& place) {
  return out << place.file << ":" << place.line;
}

template <typename... Parts>
std::string text_of(const Parts&... parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

bool operator!=(const Place& a, const Place& b) {
  return a.line != b.line || (a.file != b.file && std::strcmp(a.file, b.file) != 0);
}

bool named(unsigned mask, int lane) {
  return (mask >> lane & 1U) != 0;
}

}  // namespace

Multiprocessor::Multiprocessor()
    : fibers_of_a_thread_(races_are_reported() ? 2 : 1),
      stacks_(kMostThreads * fibers_of_a_thread_) {}

Multiprocessor& Multiprocessor::only() {
  static Multiprocessor multiprocessor;
  return multiprocessor;
}

std::string Multiprocessor::run_grid(const Launch& launch, Order order) {
  launch_ = &launch;
  problem_.clear();
  block_size = launch.threads;
  grid_size = launch.blocks;
  order_ = numbers(count_of(launch.threads), order);
  for (const int64_t block : numbers(count_of(launch.blocks), order)) {
    block_index = index_of(block, launch.blocks);
    if (races_are_reported()) {  // shared memory whose accesses are not those of another block
      std::thread([&] { run_block(); }).join();
    } else {
      run_block();
    }
    if (!problem_.empty()) {
      fibers_.clear();  // some wait in a kernel
      break;
    }
  }
  observe(&ended_);
  return problem_;
}

void Multiprocessor::begin_block() {
  const auto count = static_cast<size_t>(count_of(block_size));
  own_observed_ = this_thread();
  while (fibers_.size() < count * fibers_of_a_thread_) {
    fibers_.push_back({stacks_.top(fibers_.size(), &Multiprocessor::run_threads), new_thread()});
  }
  threads_ = std::vector<Thread>(count);
  passed_ = std::vector<char>(2);
  for (size_t k = 0; k < count; ++k) {
    threads_[k].number = k;
    threads_[k].index = index_of(static_cast<int64_t>(k), block_size);
  }
  at_barrier_ = 0;
  turn_ = count - 1;
  turn_of_fibers_ = (turn_of_fibers_ + 1) % fibers_of_a_thread_;
  publish(&begun_);
}

void Multiprocessor::run_block() {
  begin_block();
  switch_to(next(), &own_top_);
  const auto waits = [](const Thread& thread) { return thread.state != State::done; };
  if (problem_.empty() && std::any_of(threads_.begin(), threads_.end(), waits)) {
    problem_ = describe_stuck();
  }
}

bool Multiprocessor::goes_on(const Thread& thread) const {
  return thread.state == State::ready ||
         (thread.state == State::at_barrier && thread.round != barriers_);
}

/// The thread in turn of those that go on; null if all wait or have returned.
Multiprocessor::Thread* Multiprocessor::next() {
  for (size_t k = 0; k < order_.size(); ++k) {
    turn_ = turn_ + 1 < order_.size() ? turn_ + 1 : 0;
    Thread& thread = threads_[static_cast<size_t>(order_[turn_])];
    if (goes_on(thread)) {
      return &thread;
    }
  }
  return nullptr;
}

Multiprocessor::Fiber& Multiprocessor::fiber_of(const Thread& thread) {
  return fibers_[thread.number * fibers_of_a_thread_ + turn_of_fibers_];
}

/// To run_block() if there is no thread.
void Multiprocessor::switch_to(Thread* thread, void** from) {
  running_ = thread;
  if (thread == nullptr) {
    become(own_observed_);
    lockstep_switch_stack(from, own_top_);
    return;
  }
  thread->state = State::ready;
  thread_index = thread->index;
  const Fiber& fiber = fiber_of(*thread);
  become(fiber.observed);
  lockstep_switch_stack(from, fiber.top);
}

/// Until the running thread goes on.
void Multiprocessor::wait() {
  switch_to(next(), &fiber_of(*running_).top);
}

/// Where a stack begins, in each block.
void Multiprocessor::run_threads() {
  Multiprocessor& self = only();
  for (;;) {
    observe(&self.begun_);
    self.launch_->thread();
    publish(&self.ended_);
    self.running_->state = State::done;
    self.wait();
  }
}

void Multiprocessor::fail(std::string&& problem) {
  problem_ = describe(*running_) + problem;
  std::string().swap(problem);  // nothing is left behind on a stack that nothing unwinds
  for (;;) {
    switch_to(nullptr, &fiber_of(*running_).top);
  }
}

void Multiprocessor::barrier(Place place) {
  Thread& self = *running_;
  if (at_barrier_ > 0 && place != barrier_place_) {
    fail(text_of(" is in __syncthreads() at ", place, ", others are in that at ", barrier_place_));
  }
  barrier_place_ = place;
  void* const channel = &passed_[barriers_ % 2];
  publish(channel);
  if (++at_barrier_ < threads_.size()) {
    self.state = State::at_barrier;
    self.round = barriers_;
    self.place = place;
    wait();
  } else {
    at_barrier_ = 0;
    ++barriers_;
  }
  observe(channel);
}

Multiprocessor::Thread* Multiprocessor::lane(const Thread& self, int lane) {
  const size_t number = self.number / kWarp * kWarp + static_cast<size_t>(lane);
  return number < threads_.size() ? &threads_[number] : nullptr;
}

/// Neighbours first: it is one of them that mostly has not come.
bool Multiprocessor::arrives_last(const Thread& self, int own) {
  for (int distance = 1; distance < kWarp; ++distance) {
    const int k = own ^ distance;
    if (named(self.mask, k)) {
      const Thread* const other = lane(self, k);
      if (other == nullptr || other->state != State::at_exchange || other->mask != self.mask ||
          other->place != self.place) {
        return false;
      }
    }
  }
  return true;
}

uint64_t Multiprocessor::exchange(unsigned mask, uint64_t value, int step, Place place) {
  Thread& self = *running_;
  const int own = static_cast<int>(self.number % kWarp);
  const int partner = own ^ step;
  if (partner < 0 || partner >= kWarp || !named(mask, own) || !named(mask, partner)) {
    fail(text_of(", lane ", own, ", exchanges with lane ", partner, " at ", place,
                 ", but its mask is ", Mask{mask}));
  }
  self.mask = mask;
  self.value = value;
  self.step = step;
  self.place = place;
  if (!arrives_last(self, own)) {
    self.state = State::at_exchange;
    wait();
    return self.received;
  }
  for (int k = 0; k < kWarp; ++k) {
    if (named(mask, k)) {
      Thread& each = *lane(self, k);
      each.received = lane(self, k ^ each.step)->value;
      each.state = State::ready;
    }
  }
  return self.received;
}

std::string Multiprocessor::describe(const Thread& thread) const {
  return text_of("thread ", thread.index, " of block ", block_index);
}

std::string Multiprocessor::describe_stuck() const {
  const auto waits = [](const Thread& thread) { return thread.state != State::done; };
  const Thread& first = *std::find_if(threads_.begin(), threads_.end(), waits);
  std::ostringstream text;
  text << describe(first) << " waits in ";
  if (first.state == State::at_barrier) {
    text << "__syncthreads()";
  } else {
    text << "an exchange of the lanes in " << Mask{first.mask};
  }
  text << " at " << first.place << " for threads that do not come: "
       << std::count_if(threads_.begin(), threads_.end(), [&](auto& each) { return !waits(each); })
       << " of " << threads_.size() << " have returned";
  for (const Thread& other : threads_) {
    if (waits(other) && other.place != first.place) {
      text << ", " << describe(other) << " waits at " << other.place;
      break;
    }
  }
  return text.str();
}

}  // namespace lockstep::emulated_cuda
