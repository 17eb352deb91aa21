#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "../memory/device_guard.h"
#include "../memory/host_touches.h"
#include "../memory/memory.h"
#include "../memory/races.h"
#include "expect.h"

/// Each missing order is named; the right program has none. Streams are played by clocks.
namespace fake_cuda::checks {
namespace {

constexpr size_t kMib = 1 << 20;

/// A lane of work: each access is a piece of its own, ordered after the earlier ones.
class Stream {
 public:
  explicit Stream(const std::string& name) : lane_(new_lane(name)) {}
  void read(const char* what, const void* memory, size_t bytes) { use(what, memory, bytes, false); }
  void write(const char* what, const void* memory, size_t bytes) { use(what, memory, bytes, true); }
  /// What an event that is recorded now orders.
  Clock event() const { return clock_; }
  void wait(const Clock& event) { clock_.join(event); }
  uint32_t lane() const { return lane_; }

 private:
  void use(const char* what, const void* memory, size_t bytes, bool writes) {
    const Clock before = clock_;
    const Actor actor = {lane_, ++number_, &before, what};
    check_access(actor, memory, bytes, writes);
    clock_.set(lane_, number_);
  }

  uint32_t lane_;
  uint64_t number_ = 0;
  Clock clock_;
};

char* device_memory(size_t bytes) {
  void* memory = nullptr;
  if (allocate_device(&memory, bytes, 0) != cudaSuccess) {
    std::abort();
  }
  return static_cast<char*>(memory);
}

char* host_memory(size_t bytes) {
  void* memory = nullptr;
  if (allocate_host(&memory, bytes, 0) != cudaSuccess) {
    std::abort();
  }
  return static_cast<char*>(memory);
}

template <typename Function>
void expect_none(const std::string& what, Function function) {
  const long before = races_found();
  const std::string printed = printed_by(function);
  expect(races_found() == before && printed.empty(), what + ": no race " + printed);
}

/// One race, whose message has all the parts.
template <typename Function>
void expect_race(const std::string& what, const std::vector<std::string>& parts,
                 Function function) {
  const long before = races_found();
  const std::string printed = printed_by(function);
  expect(races_found() == before + 1, what + ": one race");
  for (const std::string& part : parts) {
    expect(has(printed, part), "  with \"" + part + "\" in: " + printed);
  }
}

void check_waits() {
  Stream one("stream 1");
  Stream two("stream 2");
  char* memory = device_memory(4096);
  expect_none("two pieces of one stream", [&] {
    one.write("fill", memory, 4096);
    one.read("sum", memory, 4096);
  });
  expect_none("a wait for an event", [&] {
    two.wait(one.event());
    two.read("copy", memory, 4096);
    one.wait(two.event());
  });
  expect_race("a missing wait after a write",
              {"\"scale\" (stream 1) wrote", "\"add\" (stream 2) reads", "byte 12 of 4096 bytes",
               "device 0"},
              [&] {
                one.write("scale", memory + 12, 4);
                two.read("add", memory, 4096);
              });
  expect_race("a missing wait after a read",
              {"\"add\" (stream 2) read", "\"zero\" (stream 1) writes"},
              [&] { one.write("zero", memory + 100, 4); });
  one.wait(two.event());
  two.wait(one.event());
  expect_none("two readers", [&] {
    one.read("norm", memory, 4096);
    two.read("mean", memory, 4096);
  });
  Stream three("stream 3");
  three.wait(one.event());
  expect_race("one reader of two is forgotten",
              {"\"mean\" (stream 2) read", "\"reset\" (stream 3)"},
              [&] { three.write("reset", memory, 4096); });
  release_device(memory);
}

void check_bytes() {
  Stream one("stream 1");
  Stream two("stream 2");
  char* memory = device_memory(4096);
  expect_none("halves of a word", [&] {
    one.write("first half", memory, 1022);
    two.write("second half", memory + 1022, 1000);
  });
  expect_race("one byte too many", {"byte 1021 of 4096 bytes"},
              [&] { two.write("a byte more", memory + 1021, 1); });
  Stream three("stream 3");
  expect_none("bytes of a word by two readers and a writer of the third", [&] {
    one.read("byte 0", memory + 2048, 1);
    two.read("byte 1", memory + 2049, 1);
    three.write("byte 2", memory + 2050, 1);
    three.wait(one.event());
    three.write("byte 0 again", memory + 2048, 1);
  });
  release_device(memory);
}

void check_recycled_memory() {
  Stream one("stream 1");
  Stream two("stream 2");
  char* block = device_memory(2 * kMib);
  // A caching allocator gives the block to another stream. CUDA hears nothing of it.
  expect_race("a block that was freed too early and recycled",
              {"\"gradient\" (stream 1) read", "\"next batch\" (stream 2) writes"}, [&] {
                one.write("forward", block + 512, 4096);
                two.wait(one.event());
                one.read("gradient", block + 512, 4096);
                two.write("next batch", block + 512, 4096);
              });
  one.wait(two.event());
  two.wait(one.event());
  expect_none("a block that is recycled after an event", [&] {
    one.read("gradient", block + 512, 4096);
    two.wait(one.event());
    two.write("next batch", block + 512, 4096);
  });
  release_device(block);
  char* fresh = device_memory(2 * kMib);
  expect_none("cudaFree and cudaMalloc", [&] {
    Stream three("stream 3");
    three.write("other", fresh, 2 * kMib);
  });
  release_device(fresh);
}

void check_graphs() {
  const uint32_t first = new_lane("node 0 of graph 1");
  const uint32_t second = new_lane("node 1 of graph 1");
  Stream stream("stream 1");
  char* memory = device_memory(64);
  stream.write("input", memory, 64);
  for (uint64_t launch = 1; launch <= 2; ++launch) {
    const bool has_edge = launch == 2;
    const Clock begin = stream.event();
    Clock of_second = begin;
    const auto nodes = [&] {
      check_access({first, launch, &begin, "node 0"}, memory, 64, true);
      if (has_edge) {
        of_second.set(first, launch);
      }
      check_access({second, launch, &of_second, "node 1"}, memory, 64, false);
    };
    if (has_edge) {
      expect_none("an edge of the graph", nodes);
    } else {
      expect_race("a missing edge of a graph",
                  {"\"node 0\" (node 0 of graph 1) wrote", "\"node 1\" (node 1 of graph 1) reads"},
                  nodes);
    }
    Clock end = of_second;
    end.set(first, launch);
    end.set(second, launch);
    stream.wait(end);
  }
  expect_none("after the launch", [&] { stream.write("output", memory, 64); });
  release_device(memory);
}

void check_host_clock() {
  Stream stream("stream 1");
  char* memory = host_memory(64);
  Clock host;
  expect_race("the host copies before the work is done", {"(stream 1) wrote", "(the host) reads"},
              [&] {
                stream.write("download", memory, 64);
                check_access({kHostLane, 1, &host, "cudaMemcpy"}, memory, 64, false);
              });
  expect_none("the host has waited", [&] {
    host.join(stream.event());
    check_access({kHostLane, 1, &host, "cudaMemcpy"}, memory, 64, false);
  });
  release_host(memory);
}

void check_large_ranges() {
  Stream one("stream 1");
  Stream two("stream 2");
  constexpr size_t kBytes = 64 * kMib;
  char* memory = device_memory(kBytes);
  const auto begin = std::chrono::steady_clock::now();
  expect_none("64 MiB written and read", [&] {
    for (int i = 0; i < 10; ++i) {
      one.write("fill", memory, kBytes);
      one.read("sum", memory, kBytes);
    }
  });
  const auto between = std::chrono::steady_clock::now();
  expect_race("one word of 64 MiB", {"\"peek\" (stream 2)"},
              [&] { two.read("peek", memory + kBytes / 2 + 4, 4); });
  const Clock before;
  expect_none("a million words, one by one", [&] {
    for (size_t i = 0; i < kMib; ++i) {
      check_access({one.lane(), 1000, &before, "kernel"}, memory + 4 * i, 4, true);
    }
  });
  const auto end = std::chrono::steady_clock::now();
  const auto milliseconds = [](auto duration) {
    return std::chrono::duration<double, std::milli>(duration).count();
  };
  std::printf("       a range of 64 MiB: %.2f ms; a word: %.1f ns\n",
              milliseconds(between - begin) / 20, milliseconds(end - between) * 1e6 / kMib);
  release_device(memory);
}

/// Against all pairs of accesses, with the order computed by hand: random programs of streams.
void check_random_programs() {
  struct Access {
    size_t stream, position, begin, bytes;
    bool writes;
    std::vector<size_t> known;  // of each stream, how many accesses are before this one
  };
  std::mt19937 random(1);
  const auto below = [&](size_t end) { return random() % end; };
  int racing = 0;
  int wrong = 0;
  printed_by([&] {
    for (int program = 0; program < 2000; ++program) {
      constexpr size_t kStreams = 4;
      char* memory = device_memory(4096);
      std::vector<Stream> streams;
      for (size_t i = 0; i < kStreams; ++i) {
        streams.emplace_back("random stream");
      }
      std::vector<std::vector<size_t>> known(kStreams, std::vector<size_t>(kStreams));
      std::vector<Access> accesses;
      const size_t waits = below(9);
      const long before = races_found();
      for (int step = 0; step < 12; ++step) {
        const size_t stream = below(kStreams);
        for (size_t wait = 0; wait < waits; ++wait) {
          const size_t other = below(kStreams);
          streams[stream].wait(streams[other].event());
          for (size_t i = 0; i < kStreams; ++i) {
            known[stream][i] = std::max(known[stream][i], known[other][i]);
          }
        }
        const Access access = {stream,        ++known[stream][stream],
                               4 * below(8),  4 * (1 + below(4)),
                               below(2) == 0, known[stream]};
        if (access.writes) {
          streams[stream].write("write", memory + access.begin, access.bytes);
        } else {
          streams[stream].read("read", memory + access.begin, access.bytes);
        }
        accesses.push_back(access);
      }
      bool has_race = false;
      for (size_t later = 0; later < accesses.size(); ++later) {
        for (size_t earlier = 0; earlier < later; ++earlier) {
          const Access& a = accesses[earlier];
          const Access& b = accesses[later];
          has_race |= (a.writes || b.writes) && a.begin < b.begin + b.bytes &&
                      b.begin < a.begin + a.bytes && b.known[a.stream] < a.position;
        }
      }
      racing += has_race ? 1 : 0;
      wrong += has_race != (races_found() > before) ? 1 : 0;
      release_device(memory);
    }
  });
  expect(wrong == 0 && racing > 200 && racing < 1900,
         "2000 random programs, of which " + std::to_string(racing) +
             " have a race: " + std::to_string(wrong) + " wrong answers");
}

volatile char sink = 0;

void check_host_touches() {
  Stream stream("stream 1");
  char* memory = host_memory(3 * 4096);
  std::memset(memory, 1, 3 * 4096);
  uint64_t pending = begin_pending(memory + 64, 4096, true, "download", stream.lane());
  expect_race("the host reads before the copy is done",
              {"the host reads memory that \"download\" (stream 1) has still to write",
               "byte 64 of 12288 bytes", "page-locked"},
              [&] { sink = memory[64]; });
  expect(sink == 1, "  and goes on");
  end_pending(pending);
  pending = begin_pending(memory + 64, 4096, true, "download 2", stream.lane());
  expect_none("neighbours on the same pages", [&] {
    sink = memory[63];
    memory[64 + 4096] = 2;
    std::memcpy(memory + 8000, memory, 64);
  });
  expect_race("the page is closed again after a neighbour", {"the host writes", "byte 4159"},
              [&] { memory[63 + 4096] = 3; });
  end_pending(pending);
  expect_none("the host reads after it is done", [&] { sink = memory[64]; });
  expect(memory[64 + 4096] == 2 && memory[63 + 4096] == 3, "what was written is there");

  pending = begin_pending(memory, 100, false, "upload", stream.lane());
  expect_none("the host reads what the work reads", [&] { sink = memory[5]; });
  expect_race("the buffer is filled again before its upload ran",
              {"the host writes memory that \"upload\" (stream 1) has still to read"},
              [&] { std::memset(memory, 5, 100); });
  end_pending(pending);

  pending = begin_pending(memory + 64, 8192, true, "_ZN4some6kernelEPi", stream.lane());
  expect_none("the first page of a large range may hold other things", [&] { sink = memory[64]; });
  expect_race("its whole pages are closed", {"\"some::kernel(int*)\" (stream 1)"},
              [&] { sink = memory[4096]; });
  end_pending(pending);

  pending = begin_pending(memory, 12288, true, "download 3", stream.lane());
  const uint64_t second = begin_pending(memory + 4096, 4, false, "upload 2", stream.lane());
  expect_none("the device's own access", [&] {
    const DeviceScope scope;
    std::memset(memory, 7, 12288);
  });
  end_pending(pending);
  expect_race("another piece is still pending", {"\"upload 2\""}, [&] { memory[4096] = 1; });
  end_pending(second);
  expect_none("none is pending", [&] { std::memset(memory, 0, 12288); });
  pending = begin_pending(memory, 64, true, "download 4", stream.lane());
  release_host(memory);
  end_pending(pending);
  expect(allocation_of(reinterpret_cast<uintptr_t>(memory)).bytes == 0,
         "memory can be freed while work is pending");

  std::vector<char> own(20000);
  register_host(own.data(), own.size(), 0);
  pending = begin_pending(own.data(), own.size(), true, "download 5", stream.lane());
  expect_race("registered memory", {"\"download 5\"", "registered"}, [&] { sink = own[10000]; });
  unregister_host(own.data());
  end_pending(pending);
  expect_none("it is given back", [&] { std::memset(own.data(), 0, own.size()); });
  expect(begin_pending(own.data(), 100, true, "pageable", stream.lane()) == 0,
         "other memory of the program is passed over");
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
  check_waits();
  check_bytes();
  check_recycled_memory();
  check_graphs();
  check_host_clock();
  check_large_ranges();
  check_host_touches();
  check_device_memory();
  check_other_handlers("before");
  install_foreign_handler();
  check_host_touches();
  check_other_handlers("after");
  check_random_programs();
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
