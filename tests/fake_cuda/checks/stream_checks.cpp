/// Checks of streams, events and copies: right programs have right values in each order.
#include "streams.h"

using namespace fake_cuda::checks;  // NOLINT: a program of checks

namespace {

/// Whether memory shows that work has not run yet. With the check of races the host may not look.
bool sees_lateness() {
  const char* order = std::getenv("FAKE_CUDA_ORDER");
  return (order == nullptr || std::strcmp(order, "late") == 0) &&
         std::getenv("FAKE_CUDA_RACES") == nullptr;
}

void one_stream() {
  const Stream stream;
  const DeviceBytes a;
  const DeviceBytes b;
  a.fill(1, stream);
  b.copy_from(a, stream);
  a.fill(2, stream);
  expect(b.value(stream) == 1, "manual: operations of a stream run in order: b");
  expect(a.value(stream) == 2, "manual: operations of a stream run in order: a");
}

void events() {
  const Stream one;
  const Stream two;
  const DeviceBytes a;
  const DeviceBytes b;
  a.fill(3, one);
  order(one, two);
  b.copy_from(a, two);
  expect(b.value(two) == 3, "manual: cudaStreamWaitEvent orders two streams");
  const Event event;
  must(cudaStreamWaitEvent(two, event, 0));
  expect_error(cudaEventQuery(event), cudaSuccess, "manual: an event without a record is complete");
  must(cudaEventRecord(event, one));
  a.fill(4, one);
  must(cudaStreamWaitEvent(two, event, 0));
  order(two, one);
  must(cudaEventRecord(event, one));  // a wait holds to the record before it
  b.fill(5, two);
  expect(b.value(two) == 5, "manual: a wait is for the most recent record at its time");
  must(cudaStreamSynchronize(one));
  expect_error(cudaEventQuery(event), cudaSuccess, "an event is complete after its stream");
}

void polls() {
  const Stream stream;
  const DeviceBytes a;
  a.fill(1, stream);
  const Event event;
  must(cudaEventRecord(event, stream));
  long polls = 0;
  cudaError_t error = cudaErrorNotReady;
  while ((error = cudaEventQuery(event)) == cudaErrorNotReady && polls < 1000000) {
    ++polls;
  }
  expect_error(error, cudaSuccess, "a program that polls an event goes on");
  a.fill(2, stream);
  while ((error = cudaStreamQuery(stream)) == cudaErrorNotReady) {
  }
  expect_error(error, cudaSuccess, "a program that polls a stream goes on");
}

void times() {
  const Stream stream;
  const Event begin(cudaEventDefault);
  const Event end(cudaEventDefault);
  const Event untimed;
  float milliseconds = -1;
  expect_error(cudaEventElapsedTime(&milliseconds, begin, end), cudaErrorInvalidResourceHandle,
               "manual: no time between events without a record");
  must(cudaEventRecord(begin, stream));
  must(cudaEventRecord(untimed, stream));
  must(cudaEventRecord(end, stream));
  must(cudaEventSynchronize(end));
  must(cudaEventElapsedTime(&milliseconds, begin, end));
  expect(milliseconds >= 0, "a time between two events");
  expect_error(cudaEventElapsedTime(&milliseconds, begin, untimed), cudaErrorInvalidResourceHandle,
               "manual: no time of an event with cudaEventDisableTiming");
  Gate gate(stream);
  must(cudaEventRecord(end, stream));
  expect_error(cudaEventElapsedTime(&milliseconds, begin, end), cudaErrorNotReady,
               "manual: no time before the event is complete");
  expect_error(cudaStreamQuery(stream), cudaErrorNotReady, "a stream with work is not ready");
  gate.open();
  must(cudaStreamSynchronize(stream));
}

void legacy_stream() {
  const Stream blocking(cudaStreamDefault);
  const DeviceBytes a;
  const DeviceBytes b;
  a.fill(1, blocking);
  b.copy_from(a, nullptr);
  a.fill(2, blocking);
  expect(b.value(blocking) == 1, "manual: the legacy stream waits for blocking streams");
  expect(a.value(nullptr) == 2, "manual: and blocking streams wait for it");
  {
    const Stream short_lived(cudaStreamDefault);
    a.fill(6, short_lived);
  }
  b.copy_from(a, nullptr);
  expect(b.value(nullptr) == 6, "the work of a destroyed stream counts too");
  const DeviceBytes c;
  c.fill(9, cudaStreamPerThread);
  expect(c.value(nullptr) == 9, "manual: the stream of a thread is a blocking one");
}

void non_blocking_stream() {
  const Stream stream;
  const DeviceBytes a;
  const PinnedBytes host;
  a.fill(1, stream);
  must(cudaMemcpyAsync(host.get(), a.get(), kBytes, cudaMemcpyDeviceToHost, stream));
  must(cudaStreamSynchronize(nullptr));
  if (sees_lateness()) {
    expect(host.get()[0] == 0, "manual: the legacy stream does not wait for a non-blocking one");
  }
  must(cudaStreamSynchronize(stream));
  expect(host.get()[0] == 1, "and its work is done");
}

void pageable_copies() {
  const Stream stream;
  const DeviceBytes a;
  std::vector<char> host(kBytes, 7);
  must(cudaMemcpyAsync(a.get(), host.data(), kBytes, cudaMemcpyHostToDevice, stream));
  std::memset(host.data(), 8, kBytes);
  expect(a.value(stream) == 7, "pageable memory is read before cudaMemcpyAsync returns");
  a.fill(9, stream);
  must(cudaMemcpyAsync(host.data(), a.get(), kBytes, cudaMemcpyDeviceToHost, stream));
  expect(host[0] == 9 && host[kBytes - 1] == 9,
         "manual: a copy to pageable memory is over when cudaMemcpyAsync returns");
  must(cudaMemcpy(a.get(), host.data(), kBytes, cudaMemcpyHostToDevice));
  a.fill(4, nullptr);
  must(cudaMemcpy(host.data(), a.get(), kBytes, cudaMemcpyDefault));
  expect(host[0] == 4, "manual: cudaMemcpy waits");
}

void pinned_copies() {
  const Stream stream;
  const DeviceBytes a;
  const PinnedBytes host;
  std::memset(host.get(), 1, kBytes);
  const auto upload = [&] {
    must(cudaMemcpyAsync(a.get(), host.get(), kBytes, cudaMemcpyHostToDevice, stream));
  };
  const auto download = [&] {
    must(cudaMemcpyAsync(host.get(), a.get(), kBytes, cudaMemcpyDeviceToHost, stream));
  };
  upload();
  must(cudaStreamSynchronize(stream));
  expect(a.value(stream) == 1, "a copy from page-locked memory");
  a.fill(2, stream);
  download();
  must(cudaStreamSynchronize(stream));
  expect(host.get()[0] == 2, "a copy to page-locked memory");
  if (sees_lateness()) {
    a.fill(3, stream);
    download();
    expect(host.get()[0] == 2, "who reads page-locked memory too early sees the old value");
    must(cudaStreamSynchronize(stream));
    upload();
    std::memset(host.get(), 6, kBytes);
    expect(a.value(stream) == 6, "who writes it too early sends the new value");
  }
}

void wrong_copies() {
  const DeviceBytes a;
  std::vector<char> host(2 * kBytes);
  expect_error(cudaMemcpy(a.get(), host.data(), kBytes + 1, cudaMemcpyHostToDevice),
               cudaErrorInvalidValue, "a copy beyond the end of an allocation");
  expect_error(cudaMemcpy(host.data(), host.data() + kBytes, kBytes, cudaMemcpyHostToDevice),
               cudaErrorInvalidValue, "manual: the direction of a copy is that of its pointers");
  expect_error(cudaMemset(host.data(), 0, 1), cudaErrorInvalidValue,
               "a fill of the program's own memory");
  expect_error(cudaMemcpy(nullptr, nullptr, 0, cudaMemcpyDefault), cudaSuccess, "no bytes");
  char* freed = nullptr;
  must(cudaMalloc(reinterpret_cast<void**>(&freed), kBytes));
  must(cudaFree(freed));
  expect_error(cudaMemcpy(host.data(), freed, 1, cudaMemcpyDeviceToHost), cudaErrorInvalidValue,
               "a copy from freed memory");
  expect_error(cudaFree(freed), cudaErrorInvalidValue, "manual: memory is freed once");
}

void rectangles() {
  const Stream stream;
  const DeviceBytes a;
  a.fill(0, stream);
  const std::vector<char> host(6, 5);
  must(cudaMemcpy2DAsync(a.get(), 100, host.data(), 2, 2, 3, cudaMemcpyHostToDevice, stream));
  std::vector<char> got(300);
  must(cudaMemcpyAsync(got.data(), a.get(), 300, cudaMemcpyDeviceToHost, stream));
  expect(
      got[0] == 5 && got[1] == 5 && got[2] == 0 && got[100] == 5 && got[201] == 5 && got[99] == 0,
      "a copy of three rows");
  expect_error(cudaMemcpy2DAsync(a.get(), 1, host.data(), 2, 2, 3, cudaMemcpyHostToDevice, stream),
               cudaErrorInvalidPitchValue, "manual: a row is no wider than its pitch");
}

void host_functions() {
  const Stream stream;
  struct State {
    std::vector<int> order;
    cudaError_t error = cudaSuccess;
  } state;
  const auto add = [](void* data) { static_cast<State*>(data)->order.push_back(1); };
  const auto call = [](void* data) {
    static_cast<State*>(data)->order.push_back(2);
    static_cast<State*>(data)->error = cudaDeviceSynchronize();
  };
  must(cudaLaunchHostFunc(stream, add, &state));
  must(cudaLaunchHostFunc(stream, call, &state));
  must(cudaStreamSynchronize(stream));
  expect(state.order == std::vector<int>({1, 2}), "functions of the host run in order");
  expect_error(state.error, cudaErrorNotPermitted, "manual: a host function may not call CUDA");
}

void freed_memory() {
  const Stream stream;
  const DeviceBytes result;
  void* memory = nullptr;
  must(cudaMallocAsync(&memory, kBytes, stream));
  must(cudaMemsetAsync(memory, 8, kBytes, stream));
  must(cudaMemcpyAsync(result.get(), memory, kBytes, cudaMemcpyDeviceToDevice, stream));
  must(cudaFreeAsync(memory, stream));
  expect(result.value(stream) == 8, "cudaFreeAsync frees in the order of its stream");
  must(cudaMalloc(&memory, kBytes));
  must(cudaMemsetAsync(memory, 9, kBytes, stream));
  must(cudaMemcpyAsync(result.get(), memory, kBytes, cudaMemcpyDeviceToDevice, stream));
  must(cudaFree(memory));
  expect(result.value(stream) == 9, "cudaFree waits for work that uses the memory");
}

void handles() {
  cudaStream_t stream = nullptr;
  cudaEvent_t event = nullptr;
  must(cudaStreamCreate(&stream));
  must(cudaEventCreate(&event));
  must(cudaStreamDestroy(stream));
  must(cudaEventDestroy(event));
  expect_error(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle,
               "a destroyed stream is none");
  expect_error(cudaEventQuery(event), cudaErrorInvalidResourceHandle, "a destroyed event is none");
  expect_error(cudaStreamDestroy(nullptr), cudaErrorInvalidResourceHandle,
               "a default stream stays");
}

}  // namespace

int main() {
  setenv("FAKE_CUDA_IDLE_US", "500000", 0);  // on a busy machine too, late work is late
  one_stream();
  events();
  polls();
  times();
  legacy_stream();
  non_blocking_stream();
  pageable_copies();
  pinned_copies();
  wrong_copies();
  rectangles();
  host_functions();
  freed_memory();
  handles();
  return finish();
}
