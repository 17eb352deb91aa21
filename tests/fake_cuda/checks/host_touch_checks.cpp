#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "../memory/device_guard.h"
#include "../memory/host_touches.h"
#include "../memory/memory.h"
#include "race_expectations.h"

/// Touches of the host are found: of page-locked memory that work uses, and of a device's memory.
namespace fake_cuda::checks {
namespace {

volatile char sink = 0;

/// The piece is done, and the host has waited for it.
void end(uint64_t pending, const Stream& stream) {
  Clock host;
  host.set(stream.lane(), 1);
  end_pending(pending);
  host_learns(host);
}

void check_host_touches() {
  Stream stream("stream 1");
  char* memory = host_memory(3 * 4096);
  std::memset(memory, 1, 3 * 4096);
  uint64_t pending = begin_pending(memory + 64, 4096, true, "download", stream.lane(), 1);
  expect_race("the host reads before the copy is done",
              {"the host reads memory that \"download\" (stream 1) writes, without a wait for it",
               "byte 64 of 12288 bytes", "page-locked"},
              [&] { sink = memory[64]; });
  expect(sink == 1, "  and goes on");
  end(pending, stream);
  pending = begin_pending(memory + 64, 4096, true, "download 2", stream.lane(), 1);
  expect_none("neighbours on the same pages", [&] {
    sink = memory[63];
    memory[64 + 4096] = 2;
    std::memcpy(memory + 8000, memory, 64);
  });
  expect_race("the page is closed again after a neighbour", {"the host writes", "byte 4159"},
              [&] { memory[63 + 4096] = 3; });
  end(pending, stream);
  expect_none("the host reads after it is done", [&] { sink = memory[64]; });
  expect(memory[64 + 4096] == 2 && memory[63 + 4096] == 3, "what was written is there");

  pending = begin_pending(memory, 100, false, "upload", stream.lane(), 1);
  expect_none("the host reads what the work reads", [&] { sink = memory[5]; });
  expect_race("the buffer is filled again before its upload ran",
              {"the host writes memory that \"upload\" (stream 1) reads, without a wait for it"},
              [&] { std::memset(memory, 5, 100); });
  end(pending, stream);

  pending = begin_pending(memory + 64, 8192, true, "_ZN4some6kernelEPi", stream.lane(), 1);
  expect_none("the first page of a large range may hold other things", [&] { sink = memory[64]; });
  expect_race("its whole pages are closed", {"\"some::kernel(int*)\" (stream 1)"},
              [&] { sink = memory[4096]; });
  end(pending, stream);

  pending = begin_pending(memory, 12288, true, "download 3", stream.lane(), 1);
  const uint64_t second = begin_pending(memory + 4096, 4, false, "upload 2", stream.lane(), 1);
  expect_none("the device's own access", [&] {
    const DeviceScope scope;
    std::memset(memory, 7, 12288);
  });
  end(pending, stream);
  expect_race("another piece is still pending", {"\"upload 2\""}, [&] { memory[4096] = 1; });
  end(second, stream);
  expect_none("none is pending", [&] { std::memset(memory, 0, 12288); });
  pending = begin_pending(memory, 64, true, "download 4", stream.lane(), 1);
  release_host(memory);
  end(pending, stream);
  expect(allocation_of(reinterpret_cast<uintptr_t>(memory)).bytes == 0,
         "memory can be freed while work is pending");

  std::vector<char> own(20000);
  register_host(own.data(), own.size(), 0);
  pending = begin_pending(own.data(), own.size(), true, "download 5", stream.lane(), 1);
  expect_race("registered memory", {"\"download 5\"", "registered"}, [&] { sink = own[10000]; });
  unregister_host(own.data());
  end(pending, stream);
  expect_none("it is given back", [&] { std::memset(own.data(), 0, own.size()); });
  expect(begin_pending(own.data(), 100, true, "pageable", stream.lane(), 1) == 0,
         "other memory of the program is passed over");
}

void check_touches_after_work_ran() {
  Stream stream("stream 1");
  Stream other("stream 2");
  char* memory = host_memory(4096);
  std::memset(memory, 0, 4096);
  const uint64_t pending = begin_pending(memory, 64, true, "download", stream.lane(), 5);
  end_pending(pending);
  expect_race("the copy has run, but the host does not know", {"\"download\" (stream 1) writes"},
              [&] { sink = memory[0]; });
  const uint64_t next = begin_pending(memory, 64, true, "download 2", stream.lane(), 6);
  Clock host;
  host.set(stream.lane(), 5);
  host.set(other.lane(), 9);
  host_learns(host);
  end_pending(next);
  host_learns(host);
  expect_race("the host has waited for other work", {"\"download 2\""}, [&] { sink = memory[0]; });
  host.set(stream.lane(), 7);
  host_learns(host);
  expect_none("the host has waited for what comes after it", [&] { sink = memory[0]; });
  const uint64_t last = begin_pending(memory, 64, true, "download 3", stream.lane(), 7);
  host_learns(host);
  expect_race("it runs still", {"\"download 3\""}, [&] { sink = memory[0]; });
  end_pending(last);
  release_host(memory);
}

/// Whether a child process ends by SIGSEGV when it does this.
template <typename Function>
bool is_killed(Function function) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);  // not the handler that stands in for the program's
    catch_touches();
    function();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

void check_device_memory() {
  char* memory = device_memory(3 * kMib);
  bool killed = false;
  std::string printed = printed_by([&] { killed = is_killed([&] { sink = memory[100]; }); });
  expect(killed && has(printed, "the host reads byte 100 of 3145728 bytes") &&
             has(printed, "(device 0)"),
         "the host may not read memory of a device: " + printed);
  {
    const DeviceScope scope;
    std::memset(memory, 1, 3 * kMib);
  }
  close_device_memory();
  expect(is_killed([&] { memory[0] = 1; }), "nor write it");
  {
    const DeviceScope scope;
    expect(memory[0] == 1 && memory[3 * kMib - 1] == 1, "the device's thread may");
  }
  release_device(memory);
  close_device_memory();
  printed = printed_by([&] {
    killed = is_killed([&] {
      const DeviceScope scope;
      memory[4] = 1;
    });
  });
  expect(killed && has(printed, "a piece of work writes byte 4") && has(printed, "was freed"),
         "freed memory is closed to the device, too: " + printed);
}

char* foreign = nullptr;
int foreign_faults = 0;

void on_foreign_fault(int, siginfo_t* info, void*) {
  foreign_faults += info->si_addr == foreign ? 1 : 100;
  mprotect(foreign, 4096, PROT_READ | PROT_WRITE);
}

void touch_foreign_page() {
  mprotect(foreign, 4096, PROT_NONE);
  *foreign = 1;
}

void install_foreign_handler() {
  struct sigaction action = {};
  action.sa_sigaction = on_foreign_fault;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGSEGV, &action, nullptr);
}

void check_other_handlers(const char* when) {
  foreign_faults = 0;
  touch_foreign_page();
  expect(foreign_faults == 1,
         std::string("a handler of SIGSEGV that was installed ") + when + " still gets its faults");
}

}  // namespace
}  // namespace fake_cuda::checks

int main() {
  using namespace fake_cuda::checks;
  setenv("FAKE_CUDA_RACES", "1", 1);
  foreign = static_cast<char*>(mmap(nullptr, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  install_foreign_handler();
  check_host_touches();
  check_touches_after_work_ran();
  check_device_memory();
  check_other_handlers("before");
  install_foreign_handler();
  check_host_touches();
  check_other_handlers("after");
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
