#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "../memory/memory.h"
#include "../memory/races.h"
#include "race_expectations.h"

/// Each missing order is named; the right program has none. Streams are played by clocks.
namespace fake_cuda::checks {
namespace {

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

}  // namespace
}  // namespace fake_cuda::checks

int main() {
  using namespace fake_cuda::checks;
  setenv("FAKE_CUDA_RACES", "1", 1);
  check_waits();
  check_bytes();
  check_recycled_memory();
  check_graphs();
  check_host_clock();
  check_large_ranges();
  check_random_programs();
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
