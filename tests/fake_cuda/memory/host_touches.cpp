#include "host_touches.h"

#include <execinfo.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "device_guard.h"
#include "fault_handler.h"
#include "memory.h"
#include "races.h"

namespace fake_cuda {
namespace {

constexpr uintptr_t kPage = 4096;

struct Pages {
  uintptr_t begin = 0;
  uintptr_t end = 0;
  bool contain(uintptr_t address) const { return address >= begin && address < end; }
};

/// What a piece of work that the host has not waited for does to host memory.
struct Pending {
  uint64_t id = 0;
  uintptr_t begin = 0;
  uintptr_t end = 0;
  Pages pages;  // which are closed for it
  bool writes = false;
  bool is_closed = true;  // until its race is printed
  const char* what = "";
  uint32_t lane = 0;
  uint64_t number = 0;
  bool is_done = false;
};

/// The pending pieces, and the protection of their pages. Its functions also run in the handler of
/// SIGSEGV: nothing in here touches closed memory while it holds the mutex.
class HostTouches {
 public:
  static HostTouches& instance() {
    static HostTouches* touches = new HostTouches;
    return *touches;
  }

  uint64_t begin(Pending pending);
  void end(uint64_t id);
  void learn(const Clock& host);
  void forget(uintptr_t begin, uintptr_t end);
  FaultAnswer on_fault(const Fault& fault, bool by_device);
  void close_again(Pages pages);

 private:
  template <typename Condition>
  void forget_if(Condition condition);
  void protect(Pages pages);
  int protection_of(uintptr_t page) const;

  std::mutex mutex_;
  std::vector<Pending> pending_;
  uint64_t last_id_ = 0;
};

#define IN_HANDLERS __thread __attribute__((tls_model("initial-exec")))
IN_HANDLERS int device_scopes = 0;
// What is open for this thread: for its piece of work, or for one instruction (which may touch two
// operands, each on two pages).
IN_HANDLERS Pages opened_for_device[8];
IN_HANDLERS int opened_for_device_count = 0;
IN_HANDLERS Pages opened_for_step[4];
IN_HANDLERS int opened_for_step_count = 0;

/// The calls of the program that lead to the instruction.
void print_callers(uintptr_t instruction) {
  constexpr int kMostFrames = 64;
  constexpr int kMostPrinted = 12;
  constexpr int kMostStacks = 5;  // of a process
  static std::atomic<int> stacks{0};
  if (stacks++ >= kMostStacks) {
    return;
  }
  void* frames[kMostFrames];
  const int count = backtrace(frames, kMostFrames);
  void** const end = frames + count;
  // The first ones are those of the handler.
  void** const begin = std::find(frames, end, reinterpret_cast<void*>(instruction));
  if (begin != end) {
    backtrace_symbols_fd(begin, static_cast<int>(std::min<ptrdiff_t>(end - begin, kMostPrinted)),
                         STDERR_FILENO);
  }
}

uintptr_t page_at(uintptr_t address) {
  return address / kPage * kPage;
}

uintptr_t page_after(uintptr_t address) {
  return (address + kPage - 1) / kPage * kPage;
}

/// The pages to close. What begins or ends within a page shares it with other things of the
/// program, which system calls may use: it is left open if there are whole pages.
Pages pages_of(const Pending& pending, const Allocation& allocation) {
  const uintptr_t allocation_end = allocation.begin + allocation.bytes;
  Pages all = {page_at(pending.begin), page_after(pending.end)};
  Pages whole = {
      pending.begin == allocation.begin ? page_at(pending.begin) : page_after(pending.begin),
      pending.end == allocation_end ? page_after(pending.end) : page_at(pending.end)};
  if (allocation.is_registered) {  // pages of the program's heap
    const Pages own = {page_after(allocation.begin), page_at(allocation_end)};
    all = {std::max(all.begin, own.begin), std::min(all.end, own.end)};
    whole = {std::max(whole.begin, own.begin), std::min(whole.end, own.end)};
  }
  return whole.begin < whole.end ? whole : all;
}

/// As on a real machine, the process ends then.
void print_touch_of_closed_memory(const Fault& fault, bool by_device) {
  print_line((by_device ? "a piece of work " : "the host ") +
             std::string(fault.is_write ? "writes " : "reads ") + describe_address(fault.address));
  print_callers(fault.instruction);
}

uint64_t HostTouches::begin(Pending pending) {
  const std::lock_guard lock(mutex_);
  pending.id = ++last_id_;
  pending_.push_back(pending);
  protect(pending.pages);
  return pending.id;
}

void HostTouches::end(uint64_t id) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(pending_.begin(), pending_.end(),
                                  [&](const Pending& pending) { return pending.id == id; });
  if (found != pending_.end()) {
    found->is_done = true;
  }
}

void HostTouches::learn(const Clock& host) {
  forget_if([&](const Pending& pending) {
    return pending.is_done && host.knows(pending.lane, pending.number);
  });
}

void HostTouches::forget(uintptr_t begin, uintptr_t end) {
  forget_if([&](const Pending& pending) { return pending.begin < end && begin < pending.end; });
}

template <typename Condition>
void HostTouches::forget_if(Condition condition) {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < pending_.size();) {
    if (condition(pending_[i])) {
      const Pages pages = pending_[i].pages;
      pending_.erase(pending_.begin() + static_cast<ptrdiff_t>(i));
      protect(pages);
    } else {
      ++i;
    }
  }
}

int HostTouches::protection_of(uintptr_t page) const {
  int protection = PROT_READ | PROT_WRITE;
  for (const Pending& pending : pending_) {
    if (pending.is_closed && pending.pages.contain(page)) {
      protection &= pending.writes ? PROT_NONE : PROT_READ;
    }
  }
  return protection;
}

void HostTouches::protect(Pages pages) {
  // The protection is constant between the ends of the pieces.
  std::vector<uintptr_t> ends = {pages.begin, pages.end};
  for (const Pending& pending : pending_) {
    for (const uintptr_t end : {pending.pages.begin, pending.pages.end}) {
      if (pages.contain(end)) {
        ends.push_back(end);
      }
    }
  }
  std::sort(ends.begin(), ends.end());
  for (size_t i = 0; i + 1 < ends.size(); ++i) {
    if (ends[i] != ends[i + 1]) {
      mprotect(reinterpret_cast<void*>(ends[i]), ends[i + 1] - ends[i], protection_of(ends[i]));
    }
  }
}

void HostTouches::close_again(Pages pages) {
  const std::lock_guard lock(mutex_);
  protect(pages);
}

FaultAnswer HostTouches::on_fault(const Fault& fault, bool by_device) {
  const uintptr_t address = fault.address;
  std::unique_lock lock(mutex_);
  const auto open = [](Pages pages) {
    mprotect(reinterpret_cast<void*>(pages.begin), pages.end - pages.begin, PROT_READ | PROT_WRITE);
  };
  Pages around;  // of all pieces that close the page
  std::vector<Pending> touched;
  for (Pending& pending : pending_) {
    if (!pending.is_closed || !pending.pages.contain(address)) {
      continue;
    }
    around.begin =
        around.end == 0 ? pending.pages.begin : std::min(around.begin, pending.pages.begin);
    around.end = std::max(around.end, pending.pages.end);
    const bool is_inside = address >= pending.begin && address < pending.end;
    if (!by_device && is_inside && (fault.is_write || pending.writes)) {
      touched.push_back(pending);
      pending.is_closed = false;
    }
  }
  if (around.end == 0) {
    lock.unlock();
    // Another thread may have opened the page after the fault.
    if (allocation_of(address).is_host || (by_device && open_device_memory(address))) {
      return FaultAnswer::kRetry;
    }
    if (is_in_arena(address)) {
      print_touch_of_closed_memory(fault, by_device);
    }
    return FaultAnswer::kNotMine;
  }
  if (by_device) {
    open(around);
    constexpr int kMost = sizeof opened_for_device / sizeof opened_for_device[0];
    if (opened_for_device_count < kMost) {
      opened_for_device[opened_for_device_count++] = around;
    }
    return FaultAnswer::kRetry;
  }
  if (touched.empty()) {
    const Pages page = {page_at(address), page_at(address) + kPage};
    open(page);
    constexpr int kMost = sizeof opened_for_step / sizeof opened_for_step[0];
    if (opened_for_step_count < kMost) {
      opened_for_step[opened_for_step_count++] = page;
    }
    return FaultAnswer::kStep;
  }
  for (const Pending& pending : touched) {
    protect(pending.pages);
  }
  lock.unlock();
  for (const Pending& pending : touched) {
    report_race(std::string("the host ") + (fault.is_write ? "writes" : "reads") +
                " memory that \"" + readable(pending.what) + "\" (" + name_of_lane(pending.lane) +
                ") " + (pending.writes ? "writes" : "reads") +
                ", without a wait for it: " + describe_address(address));
  }
  print_callers(fault.instruction);
  return FaultAnswer::kRetry;
}

FaultAnswer on_fault(const Fault& fault) {
  return HostTouches::instance().on_fault(fault, device_scopes > 0);
}

void after_step() {
  for (int i = 0; i < opened_for_step_count; ++i) {
    HostTouches::instance().close_again(opened_for_step[i]);
  }
  opened_for_step_count = 0;
}

}  // namespace

void catch_touches() {
  catch_faults(on_fault, after_step);
}

uint64_t begin_pending(const void* memory, size_t bytes, bool writes, const char* what,
                       uint32_t lane, uint64_t number) {
  if (!races_are_checked() || bytes == 0) {
    return 0;
  }
  const uintptr_t begin = reinterpret_cast<uintptr_t>(memory);
  const Allocation allocation = allocation_of(begin);
  if (!allocation.is_host) {
    return 0;
  }
  Pending pending;
  pending.begin = begin;
  pending.end = begin + std::min(bytes, allocation.begin + allocation.bytes - begin);
  pending.writes = writes;
  pending.what = what;
  pending.lane = lane;
  pending.number = number;
  pending.pages = pages_of(pending, allocation);
  if (pending.pages.begin >= pending.pages.end) {
    return 0;
  }
  catch_touches();
  return HostTouches::instance().begin(pending);
}

void end_pending(uint64_t pending) {
  if (pending != 0) {
    HostTouches::instance().end(pending);
  }
}

void host_learns(const Clock& host) {
  if (races_are_checked()) {
    HostTouches::instance().learn(host);
  }
}

void forget_pending(const void* memory, size_t bytes) {
  if (races_are_checked() && bytes != 0) {
    const uintptr_t begin = reinterpret_cast<uintptr_t>(memory);
    HostTouches::instance().forget(begin, begin + bytes);
  }
}

DeviceScope::DeviceScope() {
  ++device_scopes;
}

DeviceScope::~DeviceScope() {
  --device_scopes;
  for (int i = 0; i < opened_for_device_count; ++i) {
    HostTouches::instance().close_again(opened_for_device[i]);
  }
  opened_for_device_count = 0;
}

}  // namespace fake_cuda
