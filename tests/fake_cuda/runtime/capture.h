#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "graph.h"

/// Streams that record a graph, and what CUDA forbids meanwhile. CUDA's manual, "Stream capture"
/// and cudaStreamBeginCapture, is the source of the rules.
namespace fake_cuda {

struct Capture {
  unsigned long long id = 0;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread;
  CUstream_st* origin = nullptr;
  std::vector<CUstream_st*> streams;  // the origin, and what joined by waiting for an event
  CUgraph_st* graph = nullptr;
  bool is_broken = false;
  bool is_over = false;
};

/// The captures that go on. The queue's lock is held for all functions.
class Captures {
 public:
  static Captures& get();

  cudaError_t begin(CUstream_st& stream, cudaStreamCaptureMode mode);
  /// Without an error the caller owns the graph.
  cudaError_t end(CUstream_st& stream, CUgraph_st** graph);
  /// Adds a node that comes after the stream's last ones, and becomes its last one. Frees what a
  /// broken capture would not take.
  cudaError_t record(CUstream_st& stream, Piece piece);
  /// A stream that a capture holds, or a capture's event on another stream.
  cudaError_t wait_for_event(CUstream_st& stream, CUevent_st& event);
  /// Whether what the event stands for comes before the stream's last node already.
  bool comes_before(const CUevent_st& event, const CUstream_st& stream) const;
  void leave(CUstream_st& stream);

  /// For a call that could disturb a capture of this thread, or of any thread (the modes say
  /// which): success, or cudaErrorStreamCaptureUnsupported, and then those captures are broken.
  cudaError_t check_unsafe_call();
  /// For work on the legacy stream, which a capture on a blocking stream of its device would have
  /// to wait for: cudaErrorStreamCaptureImplicit.
  cudaError_t check_legacy(const CUstream_st& stream, bool breaks);
  /// For a wait or a query of the host.
  cudaError_t check_wait(CUstream_st& stream);
  cudaError_t check_wait(const CUevent_st& event);
  cudaError_t check_wait_for_device(int device);

 private:
  static bool is_unjoined(const Capture& capture);

  std::vector<std::shared_ptr<Capture>> open_;
  unsigned long long last_id_ = 0;
};

/// cudaThreadExchangeStreamCaptureMode.
cudaStreamCaptureMode exchange_capture_mode(cudaStreamCaptureMode mode);

}  // namespace fake_cuda
