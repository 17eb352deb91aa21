#include "fault_handler.h"

#include <signal.h>
#include <ucontext.h>

#include <atomic>
#include <mutex>

namespace fake_cuda {
namespace {

FaultAnswer (*fault_callback)(const Fault& fault) = nullptr;
void (*step_callback)() = nullptr;

// Whom our handlers pass signals on to. Written before our handler is installed.
struct sigaction handler_of_faults = {};
struct sigaction handler_of_traps = {};

// In handlers, thread-local variables must not be made on first use.
#define IN_HANDLERS __thread __attribute__((tls_model("initial-exec")))
IN_HANDLERS bool is_stepping = false;
IN_HANDLERS bool is_passing_on = false;
IN_HANDLERS uintptr_t last_address = 0;
IN_HANDLERS int retries = 0;

// A fault that comes back this often has another reason than ours.
constexpr int kMostRetries = 1000;

#if defined(__x86_64__)
constexpr greg_t kTrapFlag = 0x100;  // of EFLAGS: a trap after each instruction
constexpr greg_t kWriteFault = 2;    // of the error code

bool is_write(const ucontext_t& context) {
  return (context.uc_mcontext.gregs[REG_ERR] & kWriteFault) != 0;
}

uintptr_t instruction_of(const ucontext_t& context) {
  return static_cast<uintptr_t>(context.uc_mcontext.gregs[REG_RIP]);
}

bool step_once(ucontext_t& context) {
  context.uc_mcontext.gregs[REG_EFL] |= kTrapFlag;
  return true;
}

void stop_stepping(ucontext_t& context) {
  context.uc_mcontext.gregs[REG_EFL] &= ~kTrapFlag;
}
#else
bool is_write(const ucontext_t&) {
  return true;
}
uintptr_t instruction_of(const ucontext_t&) {
  return 0;
}
bool step_once(ucontext_t&) {
  return false;
}
void stop_stepping(ucontext_t&) {}
#endif

void pass_on(const struct sigaction& handler, int number, siginfo_t* info, void* context) {
  const bool is_default = (handler.sa_flags & SA_SIGINFO) == 0 &&
                          (handler.sa_handler == SIG_DFL || handler.sa_handler == SIG_IGN);
  if (is_default || is_passing_on) {
    // The instruction runs again and ends the process.
    signal(number, SIG_DFL);
    if (info->si_code <= 0) {
      raise(number);
    }
    return;
  }
  is_passing_on = true;
  if ((handler.sa_flags & SA_SIGINFO) != 0) {
    handler.sa_sigaction(number, info, context);
  } else {
    handler.sa_handler(number);
  }
  is_passing_on = false;
}

void on_fault(int number, siginfo_t* info, void* raw_context) {
  ucontext_t& context = *static_cast<ucontext_t*>(raw_context);
  const uintptr_t address = reinterpret_cast<uintptr_t>(info->si_addr);
  FaultAnswer answer = FaultAnswer::kNotMine;
  if (info->si_code == SEGV_ACCERR) {
    answer = fault_callback({address, is_write(context), instruction_of(context)});
  }
  if (answer == FaultAnswer::kRetry) {
    retries = address == last_address ? retries + 1 : 0;
    last_address = address;
    if (retries < kMostRetries) {
      return;
    }
  }
  if (answer == FaultAnswer::kStep) {
    is_stepping = step_once(context);
    return;
  }
  pass_on(handler_of_faults, number, info, raw_context);
}

void on_trap(int number, siginfo_t* info, void* raw_context) {
  if (!is_stepping) {
    pass_on(handler_of_traps, number, info, raw_context);
    return;
  }
  is_stepping = false;
  step_callback();
  stop_stepping(*static_cast<ucontext_t*>(raw_context));
}

void install(int number, void (*handler)(int, siginfo_t*, void*), struct sigaction& before) {
  struct sigaction present = {};
  sigaction(number, nullptr, &present);
  if ((present.sa_flags & SA_SIGINFO) != 0 && present.sa_sigaction == handler) {
    return;
  }
  before = present;
  struct sigaction ours = {};
  ours.sa_sigaction = handler;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigemptyset(&ours.sa_mask);
  sigaction(number, &ours, nullptr);
}

}  // namespace

void catch_faults(FaultAnswer (*on_fault_call)(const Fault& fault), void (*after_step)()) {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  fault_callback = on_fault_call;
  step_callback = after_step;
  install(SIGSEGV, on_fault, handler_of_faults);
  install(SIGTRAP, on_trap, handler_of_traps);
}

}  // namespace fake_cuda
