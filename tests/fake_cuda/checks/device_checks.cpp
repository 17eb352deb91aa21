/// Checks of devices and contexts: the current device of a thread, and what belongs to a device.
#include "processes.h"
#include "streams.h"

using namespace fake_cuda::checks;  // NOLINT: a program of checks

namespace {

void current_device() {
  int device = -1;
  must(cudaSetDevice(1));
  std::thread([&] { must(cudaGetDevice(&device)); }).join();
  expect(device == 0, "manual: a thread begins with device 0");
  must(cudaGetDevice(&device));
  expect(device == 1, "manual: the current device is one of a thread");
  expect_error(cudaSetDevice(2), cudaErrorInvalidDevice, "no third device");
  int count = 0;
  must(cudaGetDeviceCount(&count));
  expect(count == 2, "FAKE_CUDA_DEVICES");
}

void streams_of_devices() {
  const Stream here;
  const Event event;
  const Event timed(cudaEventDefault);
  must(cudaEventRecord(timed, here));
  must(cudaEventSynchronize(timed));
  must(cudaSetDevice(1));
  const Stream there;
  const Event timed_there(cudaEventDefault);
  must(cudaEventRecord(timed_there, there));
  must(cudaEventSynchronize(timed_there));
  expect_error(cudaEventRecord(event, there), cudaErrorInvalidResourceHandle,
               "manual: event and stream are of one device");
  float time = 0;
  expect_error(cudaEventElapsedTime(&time, timed, timed_there), cudaErrorInvalidResourceHandle,
               "manual: no time between events of two devices");
  must(cudaEventRecord(event, here));
  expect_error(cudaStreamWaitEvent(there, event, 0), cudaSuccess,
               "manual: a stream waits for an event of another device");
  expect_error(cudaEventQuery(timed), cudaSuccess, "manual: an event of another device is asked");
  int device = -1;
  must(cudaStreamGetDevice(here, &device));
  expect(device == 0, "a stream has the device that was current");
}

void copies_between_devices() {
  const Stream here;
  const DeviceBytes a;
  a.fill(3, here);
  must(cudaSetDevice(1));
  const DeviceBytes b;
  const Stream there;
  order(there, there);
  const Event event;
  must(cudaSetDevice(0));
  must(cudaMemcpyPeerAsync(b.get(), 1, a.get(), 0, kBytes, here));
  expect(b.value(here) == 3, "a copy between two devices");
  cudaPointerAttributes attributes;
  must(cudaPointerGetAttributes(&attributes, b.get()));
  expect(attributes.device == 1 && attributes.type == cudaMemoryTypeDevice,
         "memory has the device that was current");
  int can = -1;
  must(cudaDeviceCanAccessPeer(&can, 0, 1));
  expect(can == 1, "peers");
  expect_error(cudaDeviceEnablePeerAccess(1, 0), cudaSuccess, "access to a peer");
  expect_error(cudaDeviceEnablePeerAccess(1, 0), cudaErrorPeerAccessAlreadyEnabled, "manual: once");
  size_t free = 0;
  size_t total = 0;
  must(cudaMemGetInfo(&free, &total));
  expect(total == size_t{64} << 20 && free < total, "FAKE_CUDA_MIB");
  void* memory = nullptr;
  expect_error(cudaMalloc(&memory, size_t{65} << 20), cudaErrorMemoryAllocation, "no more memory");
  expect_error(cudaDeviceSynchronize(), cudaSuccess, "which is no lasting error");
  std::vector<char> host(16);
  must(cudaPointerGetAttributes(&attributes, host.data()));
  expect(attributes.type == cudaMemoryTypeUnregistered,
         "manual: memory of the program is unregistered, which is no error");
}

void properties() {
  cudaDeviceProp properties;
  must(cudaGetDeviceProperties(&properties, 0));
  int value = 0;
  must(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0));
  const bool is_80 = std::getenv("FAKE_CUDA_CC") != nullptr;
  expect(properties.major == (is_80 ? 8 : 7) && value == (is_80 ? 166912 : 65536),
         "manual: features of the compute capability");
  expect_error(cudaDeviceGetAttribute(&value, static_cast<cudaDeviceAttr>(9999), 0),
               cudaErrorInvalidValue, "an attribute that is not known is refused");
}

void no_context() {
  int value = 0;
  cudaDeviceProp properties;
  must(cudaGetDeviceCount(&value));
  must(cudaGetDeviceProperties(&properties, 0));
  must(cudaDeviceGetAttribute(&value, cudaDevAttrWarpSize, 0));
  must(cudaGetDevice(&value));
}

void context_of_second() {
  must(cudaSetDevice(1));
  must(cudaFree(nullptr));
}

void context_of_thread() {
  must(cudaSetDevice(1));
  std::thread([] { must(cudaFree(nullptr)); }).join();  // its device is 0
}

void after_fork() {
  must(cudaFree(nullptr));
  const pid_t child = fork();
  if (child == 0) {
    _exit(cudaFree(nullptr) == cudaErrorInitializationError ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  expect(status == 0, "CUDA does not work in a forked child");
}

void no_cuda() {
  int count = -1;
  const cudaError_t error = cudaGetDeviceCount(&count);
  std::printf("%d %s\n", count, cudaGetErrorName(error));
}

std::string report_of(const std::string& name) {
  const std::string path = "/tmp/fake_cuda_report_" + std::to_string(getpid());
  check_case(name, "FAKE_CUDA_DEVICES=2 FAKE_CUDA_REPORT=" + path);
  std::string text;
  if (std::FILE* file = std::fopen(path.c_str(), "r")) {
    char part[4096];
    text.assign(part, fread(part, 1, sizeof(part), file));
    std::fclose(file);
    unlink(path.c_str());
  }
  return text;
}

const Cases kCases = {{"current_device", current_device},
                      {"streams_of_devices", streams_of_devices},
                      {"copies_between_devices", copies_between_devices},
                      {"properties", properties},
                      {"no_context", no_context},
                      {"context_of_second", context_of_second},
                      {"context_of_thread", context_of_thread},
                      {"after_fork", after_fork},
                      {"no_cuda", no_cuda}};

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) {
    return run_named(kCases, argv[1]);
  }
  check_case("current_device", "FAKE_CUDA_DEVICES=2");
  check_case("streams_of_devices", "FAKE_CUDA_DEVICES=2");
  check_case("copies_between_devices", "FAKE_CUDA_DEVICES=2 FAKE_CUDA_MIB=64");
  check_case("properties");
  check_case("properties", "FAKE_CUDA_CC=80");
  check_case("after_fork");
  expect(report_of("no_context").empty(), "questions about devices make no context");
  const std::string second = report_of("context_of_second");
  expect(has(second, "\"device\": 1") && !has(second, "\"device\": 0") &&
             has(second, "\"call\": \"cudaSetDevice\""),
         "manual: cudaSetDevice makes the context, and no other");
  const std::string of_thread = report_of("context_of_thread");
  expect(has(of_thread, "\"device\": 0") && has(of_thread, "\"main_thread\": false"),
         "the ledger names a thread that makes a context on device 0 by mistake");
  expect(has(run_case("no_cuda", "FAKE_CUDA_DEVICES=0").output, "0 cudaErrorNoDevice"),
         "no device");
  expect(has(run_case("no_cuda", "FAKE_CUDA_INIT=803").output, "0 cudaErrorSystemDriverMismatch"),
         "FAKE_CUDA_INIT is what the first call answers");
  std::printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
