/// Checks of stream captures: what joins one, what breaks one, and in which thread.
#include "streams.h"

using namespace fake_cuda::checks;  // NOLINT: a program of checks

namespace {

constexpr auto kGlobal = cudaStreamCaptureModeGlobal;
constexpr auto kThreadLocal = cudaStreamCaptureModeThreadLocal;
constexpr auto kRelaxed = cudaStreamCaptureModeRelaxed;

void in_thread(const std::function<void()>& function) {
  std::thread(function).join();
}

/// Ends the capture and expects this error.
void end(cudaStream_t stream, cudaError_t wanted, const std::string& what) {
  cudaGraph_t graph = nullptr;
  expect_error(cudaStreamEndCapture(stream, &graph), wanted, what);
  if (graph != nullptr) {
    must(cudaGraphDestroy(graph));
  }
}

/// A capture in which a call is made: by this thread, or by another one.
void call_in_capture(cudaStreamCaptureMode mode, bool elsewhere,
                     const std::function<cudaError_t()>& call, cudaError_t wanted,
                     const std::string& what) {
  const Stream stream;
  must(cudaStreamBeginCapture(stream, mode));
  const auto check = [&] { expect_error(call(), wanted, what); };
  if (elsewhere) {
    in_thread(check);
  } else {
    check();
  }
  end(stream, wanted == cudaSuccess ? cudaSuccess : cudaErrorStreamCaptureInvalidated,
      what + (wanted == cudaSuccess ? ", the capture is whole" : ", the capture is broken"));
}

cudaError_t allocate() {
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, 16);
  return error == cudaSuccess ? cudaFree(memory) : error;
}

void unsafe_calls() {
  const cudaError_t no = cudaErrorStreamCaptureUnsupported;
  const cudaError_t yes = cudaSuccess;
  call_in_capture(kGlobal, false, allocate, no, "manual: global, cudaMalloc");
  call_in_capture(kGlobal, true, allocate, no, "manual: global, cudaMalloc of another thread");
  call_in_capture(kThreadLocal, false, allocate, no, "manual: thread-local, cudaMalloc");
  call_in_capture(kThreadLocal, true, allocate, yes, "manual: thread-local, another thread");
  call_in_capture(kRelaxed, false, allocate, yes, "manual: relaxed, cudaMalloc");
  call_in_capture(kRelaxed, true, allocate, yes, "manual: relaxed, another thread");
  const auto relaxed = [] {
    cudaStreamCaptureMode mode = kRelaxed;
    must(cudaThreadExchangeStreamCaptureMode(&mode));
    const cudaError_t error = allocate();
    must(cudaThreadExchangeStreamCaptureMode(&mode));
    expect(mode == kRelaxed, "manual: cudaThreadExchangeStreamCaptureMode gives the old mode");
    return error;
  };
  call_in_capture(kGlobal, false, relaxed, yes, "manual: global, within a relaxed thread");
  const auto thread_local_thread = [] {
    cudaStreamCaptureMode mode = kThreadLocal;
    must(cudaThreadExchangeStreamCaptureMode(&mode));
    return allocate();
  };
  call_in_capture(kGlobal, true, thread_local_thread, yes,
                  "manual: global, another thread that is thread-local");
}

void waits() {
  const Event done;
  const Stream other;
  must(cudaEventRecord(done, other));
  must(cudaEventSynchronize(done));
  const auto query = [&] { return cudaEventQuery(done); };
  call_in_capture(kGlobal, false, query, cudaErrorStreamCaptureUnsupported,
                  "cudaEventQuery of a finished event");
  call_in_capture(kThreadLocal, true, query, cudaSuccess, "a watching thread asks for an event");
  call_in_capture(
      kRelaxed, false, [] { return cudaDeviceSynchronize(); }, cudaErrorStreamCaptureUnsupported,
      "manual: a wait for a device with a capture, also relaxed");
  const Stream stream;
  must(cudaStreamBeginCapture(stream, kRelaxed));
  expect_error(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported,
               "manual: no wait for a stream that captures");
  expect_error(cudaMemsetAsync(nullptr, 0, 0, stream), cudaSuccess, "no bytes do nothing");
  const Event event;
  expect_error(cudaEventRecord(event, stream), cudaErrorStreamCaptureInvalidated,
               "a broken capture takes no more");
  end(stream, cudaErrorStreamCaptureInvalidated, "manual: and gives no graph");
  const DeviceBytes a;
  must(cudaStreamBeginCapture(stream, kRelaxed));
  a.fill(1, stream);
  must(cudaEventRecord(event, stream));
  expect_error(cudaEventSynchronize(event), cudaErrorCapturedEvent,
               "manual: no wait for an event of a capture");
  end(stream, cudaErrorStreamCaptureInvalidated, "which breaks the capture");
  expect_error(cudaEventQuery(event), cudaErrorCapturedEvent, "also after the capture");
  must(cudaEventRecord(event, stream));
  expect_error(cudaEventSynchronize(event), cudaSuccess, "until it is recorded again");
}

void forks() {
  const Stream one;
  const Stream two;
  const DeviceBytes a;
  const DeviceBytes b;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  must(cudaStreamBeginCapture(one, kGlobal));
  a.fill(1, one);
  order(one, two);
  must(cudaStreamIsCapturing(two, &status));
  expect(status == cudaStreamCaptureStatusActive, "manual: a wait for its event joins a capture");
  b.fill(1, two);
  order(two, one);
  end(one, cudaSuccess, "manual: a stream that came back is joined");
  must(cudaStreamIsCapturing(two, &status));
  expect(status == cudaStreamCaptureStatusNone, "manual: the end is for all streams");
  must(cudaStreamBeginCapture(one, kGlobal));
  order(one, two);
  end(one, cudaSuccess, "a stream that joined and did nothing is no matter");
  must(cudaStreamBeginCapture(one, kGlobal));
  a.fill(1, one);
  order(one, two);
  b.fill(1, two);
  end(one, cudaErrorStreamCaptureUnjoined, "manual: unjoined work");
  must(cudaStreamBeginCapture(one, kGlobal));
  a.fill(1, one);
  order(one, two);
  end(two, cudaErrorStreamCaptureUnmatched, "manual: only its first stream ends a capture");
  end(one, cudaErrorStreamCaptureInvalidated, "which breaks it");
}

void boundaries() {
  const Stream one;
  const Stream two;
  const Event event;
  must(cudaEventRecord(event, two));
  must(cudaStreamSynchronize(two));
  must(cudaStreamBeginCapture(one, kGlobal));
  expect_error(cudaStreamWaitEvent(one, event, 0), cudaErrorStreamCaptureIsolation,
               "manual: no wait within a capture for an event from outside");
  end(one, cudaErrorStreamCaptureInvalidated, "which breaks the capture");
  must(cudaStreamBeginCapture(one, kGlobal));
  must(cudaStreamBeginCapture(two, kGlobal));
  must(cudaEventRecord(event, one));
  expect_error(cudaStreamWaitEvent(two, event, 0), cudaErrorStreamCaptureMerge,
               "manual: two captures do not merge");
  end(one, cudaErrorStreamCaptureInvalidated, "which breaks the one");
  end(two, cudaErrorStreamCaptureInvalidated, "and the other");
  must(cudaStreamBeginCapture(one, kGlobal));
  must(cudaEventRecord(event, one));
  end(one, cudaSuccess, "an empty capture");
  expect_error(cudaStreamWaitEvent(two, event, 0), cudaErrorStreamCaptureIsolation,
               "no wait for an event of a capture that is over");
}

void legacy_stream() {
  const DeviceBytes a;
  expect_error(cudaStreamBeginCapture(nullptr, kGlobal), cudaErrorStreamCaptureUnsupported,
               "manual: the legacy stream does not capture");
  const Stream blocking(cudaStreamDefault);
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  must(cudaStreamBeginCapture(blocking, kRelaxed));
  expect_error(cudaStreamIsCapturing(nullptr, &status), cudaErrorStreamCaptureImplicit,
               "manual: the legacy stream cannot be asked while a blocking one captures");
  a.fill(1, blocking);
  end(blocking, cudaSuccess, "manual: which breaks nothing");
  must(cudaStreamBeginCapture(blocking, kRelaxed));
  expect_error(cudaMemsetAsync(a.get(), 1, 1, nullptr), cudaErrorStreamCaptureImplicit,
               "manual: no work on the legacy stream while a blocking one captures");
  end(blocking, cudaErrorStreamCaptureInvalidated, "which breaks the capture");
  const Stream stream;
  must(cudaStreamBeginCapture(stream, kGlobal));
  expect_error(cudaMemsetAsync(a.get(), 1, 1, nullptr), cudaSuccess,
               "manual: but while a non-blocking one captures");
  end(stream, cudaSuccess, "which breaks nothing");
}

void threads() {
  const Stream stream;
  must(cudaStreamBeginCapture(stream, kThreadLocal));
  expect_error(cudaStreamBeginCapture(stream, kThreadLocal), cudaErrorIllegalState,
               "a stream captures once at a time");
  in_thread([&] {
    cudaGraph_t graph = nullptr;
    expect_error(cudaStreamEndCapture(stream, &graph), cudaErrorStreamCaptureWrongThread,
                 "manual: the thread that began a capture ends it");
  });
  end(stream, cudaSuccess, "and can do so after that");
  must(cudaStreamBeginCapture(stream, kRelaxed));
  in_thread([&] { end(stream, cudaSuccess, "manual: any thread if it is relaxed"); });
  cudaGraph_t graph = nullptr;
  expect_error(cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState,
               "no end without a begin");
}

}  // namespace

int main() {
  unsafe_calls();
  waits();
  forks();
  boundaries();
  legacy_stream();
  threads();
  return finish();
}
