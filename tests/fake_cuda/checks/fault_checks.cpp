/// Checks of planted faults and of errors that stay.
#include "processes.h"
#include "streams.h"

using namespace fake_cuda::checks;  // NOLINT: a program of checks

namespace {

void failed_wait() {
  const Stream stream;
  void* memory = nullptr;
  must(cudaMalloc(&memory, 16));
  expect_error(cudaStreamSynchronize(stream), cudaSuccess, "wait 0");
  expect(cudaDeviceSynchronize() == cudaErrorLaunchFailure, "FAKE_CUDA_FAIL_SYNC=1 is wait 1");
  expect(cudaGetLastError() == cudaErrorLaunchFailure, "the last error");
  expect(cudaGetLastError() == cudaErrorLaunchFailure, "manual: which stays");
  expect(cudaMalloc(&memory, 16) == cudaErrorLaunchFailure,
         "manual: each later call fails: malloc");
  expect(cudaMemsetAsync(memory, 0, 16, stream) == cudaErrorLaunchFailure, "fill");
  expect(cudaStreamSynchronize(stream) == cudaErrorLaunchFailure, "wait");
  expect(cudaEventCreate(nullptr) == cudaErrorLaunchFailure, "event");
  int device = -1;
  expect(cudaGetDevice(&device) == cudaSuccess && cudaSetDevice(device) == cudaSuccess,
         "the current device can be asked and set");
}

void failed_malloc() {
  void* memory = nullptr;
  must(cudaMalloc(&memory, 16));
  expect(cudaMalloc(&memory, 16) == cudaErrorMemoryAllocation, "FAKE_CUDA_FAIL_MALLOC=1");
  expect(cudaPeekAtLastError() == cudaErrorMemoryAllocation, "the last error can be seen");
  expect(cudaGetLastError() == cudaErrorMemoryAllocation, "and taken");
  expect(cudaGetLastError() == cudaSuccess, "manual: which resets it");
  expect(cudaMalloc(&memory, 16) == cudaSuccess, "the next one has memory");
}

void waits() {
  const Stream one;
  const Stream two;
  const DeviceBytes a;
  const DeviceBytes b;
  for (int i = 0; i < 3; ++i) {
    a.fill(i, one);
    order(one, two);
    b.copy_from(a, two);
    order(two, one);
  }
  must(cudaDeviceSynchronize());
}

void waits_of_graph() {
  const Stream one;
  const Stream two;
  const DeviceBytes a;
  const DeviceBytes b;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t exec = nullptr;
  must(cudaStreamBeginCapture(one, cudaStreamCaptureModeGlobal));
  order(one, two);
  b.fill(1, two);
  a.fill(1, one);
  order(one, two);  // the second wait: forgotten, the copy races with the fill
  b.copy_from(a, two);
  order(two, one);
  must(cudaStreamEndCapture(one, &graph));
  must(cudaGraphInstantiateWithFlags(&exec, graph, 0));
  must(cudaGraphLaunch(exec, one));
  must(cudaStreamSynchronize(one));
}

void skipped_functions() {
  const Stream stream;
  static bool is_called = false;
  must(cudaLaunchHostFunc(
      stream, [](void*) {}, nullptr));
  cudaDeviceSynchronize();
  expect(cudaLaunchHostFunc(
             stream, [](void*) { is_called = true; }, nullptr) == cudaErrorLaunchFailure,
         "manual: no host function after an error");
  expect(!is_called, "it is not called");
}

void freed_too_early() {
  const Stream stream;
  const Stream other;
  const DeviceBytes a;
  void* memory = nullptr;
  must(cudaMallocAsync(&memory, kBytes, stream));
  must(cudaFreeAsync(memory, stream));
  must(cudaStreamSynchronize(stream));
  expect(cudaMemcpyAsync(a.get(), memory, kBytes, cudaMemcpyDeviceToDevice, other) ==
             cudaErrorInvalidValue,
         "a copy from freed memory is refused");
}

void report() {
  waits();
}

const Cases kCases = {{"failed_wait", failed_wait},
                      {"failed_malloc", failed_malloc},
                      {"waits", waits},
                      {"waits_of_graph", waits_of_graph},
                      {"skipped_functions", skipped_functions},
                      {"freed_too_early", freed_too_early},
                      {"report", report}};

bool finds_race(const std::string& name, int forgotten) {
  const Outcome outcome =
      run_case(name, "FAKE_CUDA_RACES=1 FAKE_CUDA_FORGET_WAIT=" + std::to_string(forgotten));
  return has(outcome.output, "race:");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) {
    return run_named(kCases, argv[1]);
  }
  check_case("failed_wait", "FAKE_CUDA_FAIL_SYNC=1");
  check_case("failed_malloc", "FAKE_CUDA_FAIL_MALLOC=1");
  check_case("skipped_functions", "FAKE_CUDA_FAIL_SYNC=0");
  check_case("freed_too_early");
  expect(!finds_race("waits", -1), "no race in a right program");
  for (int i = 0; i < 5; ++i) {  // nothing comes after the last one
    expect(finds_race("waits", i), "a race if wait " + std::to_string(i) + " is forgotten");
  }
  expect(!finds_race("waits_of_graph", -1), "no race in a right graph");
  expect(finds_race("waits_of_graph", 1), "a race between two nodes of a graph");
  const Outcome reported = check_case("report", "FAKE_CUDA_REPORT=/dev/stdout");
  expect(has(reported.output, "\"waits\": 6") && has(reported.output, "\"races\": 0") &&
             has(reported.output, "\"error\": \"cudaSuccess\"") &&
             has(reported.output, "\"mallocs\": 2"),
         "the report counts");
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
