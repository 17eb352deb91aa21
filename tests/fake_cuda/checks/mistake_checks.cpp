#include <cuda_runtime_api.h>
#include <sys/wait.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "expect.h"

/// Programs with one mistake each, through CUDA's functions and the device's thread, and the right
/// program beside each. Without an argument, all of them in processes of their own.
namespace fake_cuda::checks {
namespace {

constexpr size_t kBytes = 1 << 20;

void must(cudaError_t error) {
  if (error != cudaSuccess) {
    std::fprintf(stderr, "unexpected: %s\n", cudaGetErrorString(error));
    std::exit(3);
  }
}

cudaStream_t new_stream() {
  cudaStream_t stream = nullptr;
  must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

char* device_memory() {
  void* memory = nullptr;
  must(cudaMalloc(&memory, kBytes));
  return static_cast<char*>(memory);
}

char* host_memory() {
  void* memory = nullptr;
  must(cudaHostAlloc(&memory, kBytes, cudaHostAllocDefault));
  std::memset(memory, 1, kBytes);
  return static_cast<char*>(memory);
}

void order(cudaStream_t first, cudaStream_t second) {
  cudaEvent_t event = nullptr;
  must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  must(cudaEventRecord(event, first));
  must(cudaStreamWaitEvent(second, event, 0));
}

void streams(bool is_right) {
  const cudaStream_t one = new_stream();
  const cudaStream_t two = new_stream();
  char* memory = device_memory();
  char* copy = device_memory();
  must(cudaMemsetAsync(memory, 0, kBytes, one));
  if (is_right) {
    order(one, two);
  }
  must(cudaMemcpyAsync(copy, memory, kBytes, cudaMemcpyDeviceToDevice, two));
  must(cudaDeviceSynchronize());
}

/// A caching allocator gives a block of one stream to another.
void recycled_block(bool is_right) {
  const cudaStream_t one = new_stream();
  const cudaStream_t two = new_stream();
  char* memory = device_memory();
  char* result = device_memory();
  must(cudaMemsetAsync(memory, 1, 4096, one));
  order(one, two);
  must(cudaMemcpyAsync(result, memory, 4096, cudaMemcpyDeviceToDevice, two));
  if (is_right) {
    order(two, one);
  }
  must(cudaMemsetAsync(memory, 2, 4096, one));
  must(cudaDeviceSynchronize());
}

void download(bool is_right) {
  const cudaStream_t stream = new_stream();
  char* memory = device_memory();
  char* host = host_memory();
  must(cudaMemsetAsync(memory, 7, kBytes, stream));
  must(cudaMemcpyAsync(host, memory, kBytes, cudaMemcpyDeviceToHost, stream));
  if (is_right) {
    must(cudaStreamSynchronize(stream));
  }
  std::printf("the host sees %d\n", host[kBytes / 2]);
  must(cudaDeviceSynchronize());
}

void upload(bool is_right) {
  const cudaStream_t stream = new_stream();
  char* memory = device_memory();
  char* host = host_memory();
  must(cudaMemcpyAsync(memory, host, kBytes, cudaMemcpyHostToDevice, stream));
  if (is_right) {
    must(cudaStreamSynchronize(stream));
  }
  std::memset(host, 9, kBytes);
  must(cudaDeviceSynchronize());
}

/// A graph's copy closes its buffer at each launch, not when it is recorded.
void graph_download(bool is_right) {
  const cudaStream_t stream = new_stream();
  char* memory = device_memory();
  char* host = host_memory();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  must(cudaMemcpyAsync(host, memory, kBytes, cudaMemcpyDeviceToHost, stream));
  must(cudaStreamEndCapture(stream, &graph));
  must(cudaGraphInstantiate(&executable, graph, 0));
  host[0] = 1;
  for (int launch = 0; launch < 2; ++launch) {
    must(cudaGraphLaunch(executable, stream));
    if (is_right || launch == 0) {
      must(cudaStreamSynchronize(stream));
    }
    std::printf("the host sees %d\n", host[0]);
  }
  must(cudaDeviceSynchronize());
}

/// Two branches of a capture that nothing orders.
void graph_branches(bool is_right) {
  const cudaStream_t one = new_stream();
  const cudaStream_t two = new_stream();
  char* memory = device_memory();
  char* copy = device_memory();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  must(cudaStreamBeginCapture(one, cudaStreamCaptureModeThreadLocal));
  if (!is_right) {
    order(one, two);
  }
  must(cudaMemsetAsync(memory, 0, kBytes, one));
  if (is_right) {
    order(one, two);
  }
  must(cudaMemcpyAsync(copy, memory, kBytes, cudaMemcpyDeviceToDevice, two));
  order(two, one);
  must(cudaStreamEndCapture(one, &graph));
  must(cudaGraphInstantiate(&executable, graph, 0));
  for (int launch = 0; launch < 3; ++launch) {
    must(cudaGraphLaunch(executable, one));
  }
  must(cudaDeviceSynchronize());
}

/// What a destroyed stream did is ordered by a wait for the device, also if it has run already.
void destroyed_stream(bool is_right) {
  const cudaStream_t one = new_stream();
  const cudaStream_t two = new_stream();
  char* memory = device_memory();
  must(cudaMemsetAsync(memory, 0, kBytes, one));
  must(cudaStreamDestroy(one));
  if (is_right) {
    must(cudaDeviceSynchronize());
  }
  must(cudaMemsetAsync(memory, 1, kBytes, two));
  must(cudaDeviceSynchronize());
}

void stream_ordered_release(bool is_right) {
  const cudaStream_t one = new_stream();
  const cudaStream_t two = new_stream();
  char* memory = device_memory();
  must(cudaMemsetAsync(memory, 0, kBytes, one));
  if (is_right) {
    order(one, two);
  }
  must(cudaFreeAsync(memory, two));
  if (cudaDeviceSynchronize() != cudaSuccess) {
    std::fprintf(stderr, "the device has failed\n");
  }
}

void double_release(bool is_right) {
  char* memory = device_memory();
  must(cudaFree(memory));
  if (!is_right && cudaFree(memory) == cudaErrorInvalidValue) {
    std::fprintf(stderr, "an error is returned\n");
  }
}

void out_of_range(bool is_right) {
  char* memory = device_memory();
  if (cudaMemset(memory + 16, 0, is_right ? kBytes - 16 : kBytes) != cudaSuccess) {
    std::fprintf(stderr, "an error is returned\n");
  }
}

void host_access(bool is_right) {
  char* memory = is_right ? host_memory() : device_memory();
  memory[100] = 1;
}

struct Mistake {
  const char* name;
  void (*program)(bool is_right);
  std::vector<std::string> message;  // all of these are printed
};

const std::vector<Mistake>& mistakes() {
  static const std::vector<Mistake> all = {
      {"streams", streams, {"race: ", "\"fill\" (stream 1)", "\"copy on devices\" (stream 2)"}},
      {"recycled_block", recycled_block, {"race: ", "no event orders them", "of 1048576 bytes"}},
      {"download", download, {"race: the host reads memory", "writes, without a wait"}},
      {"upload", upload, {"race: the host writes memory", "reads, without a wait"}},
      {"graph_download", graph_download, {"race: the host reads memory", "of graph 1"}},
      {"graph_branches", graph_branches, {"race: ", "of graph 1"}},
      {"destroyed_stream", destroyed_stream, {"race: ", "(stream 1)", "(stream 2)"}},
      {"stream_ordered_release", stream_ordered_release, {"fake cuda: ", "free"}},
      {"double_release", double_release, {"cudaFree of 0x", "which was freed", "is returned"}},
      {"out_of_range", out_of_range, {"an error is returned"}},
      {"host_access", host_access, {"the host writes byte 100 of 1048576 bytes", "(device 0)"}},
  };
  return all;
}

std::string printed_by_child(const std::string& program, const char* name, const char* right) {
  const std::string command = program + " " + name + " " + right + " > /dev/null";
  return printed_by([&] {
    if (std::system(command.c_str()) < 0) {
      std::abort();
    }
  });
}

void check_right_programs(const std::string& program, const char* order) {
  setenv("FAKE_CUDA_ORDER", order, 1);
  for (const Mistake& mistake : mistakes()) {
    const std::string none = printed_by_child(program, mistake.name, "right");
    expect(none.empty(),
           std::string(order) + ", " + mistake.name + ": the right program prints nothing " + none);
  }
}

void check_mistakes(const std::string& program) {
  setenv("FAKE_CUDA_ORDER", "late", 1);
  for (const Mistake& mistake : mistakes()) {
    const std::string printed = printed_by_child(program, mistake.name, "wrong");
    for (const std::string& part : mistake.message) {
      expect(has(printed, part), std::string(mistake.name) + ": \"" + part + "\" in " + printed);
    }
  }
}

void check_forgotten_wait(const std::string& program) {
  setenv("FAKE_CUDA_FORGET_WAIT", "0", 1);
  const std::string printed = printed_by_child(program, "streams", "right");
  expect(has(printed, "race: "), "a wait that is forgotten as asked: " + printed);
}

}  // namespace
}  // namespace fake_cuda::checks

int main(int argc, char** argv) {
  using namespace fake_cuda::checks;
  setenv("FAKE_CUDA_RACES", "1", 1);
  if (argc == 3) {
    for (const Mistake& mistake : mistakes()) {
      if (std::strcmp(mistake.name, argv[1]) == 0) {
        mistake.program(std::strcmp(argv[2], "right") == 0);
        return 0;
      }
    }
    return 2;
  }
  for (const char* order : {"late", "random", "eager"}) {
    check_right_programs(argv[0], order);
  }
  setenv("FAKE_CUDA_IDLE_US", "60000000", 1);  // also on a busy machine, nothing runs unasked
  check_mistakes(argv[0]);
  check_forgotten_wait(argv[0]);
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
