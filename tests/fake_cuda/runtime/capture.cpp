#include "capture.h"

#include <algorithm>
#include <set>
#include <vector>

namespace fake_cuda {

namespace {

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

}  // namespace

cudaStreamCaptureMode exchange_capture_mode(cudaStreamCaptureMode mode) {
  return std::exchange(thread_mode, mode);
}

Captures& Captures::get() {
  static auto& captures = *new Captures;
  return captures;
}

cudaError_t Captures::begin(CUstream_st& stream, cudaStreamCaptureMode mode) {
  if (stream.is_legacy) {
    return cudaErrorStreamCaptureUnsupported;
  }
  if (stream.capture) {
    return cudaErrorIllegalState;
  }
  auto capture = std::make_shared<Capture>();
  capture->id = ++last_id_;
  capture->mode = mode;
  capture->thread = std::this_thread::get_id();
  capture->origin = &stream;
  capture->streams.push_back(&stream);
  capture->graph = new CUgraph_st;
  stream.capture = capture;
  stream.tips.clear();
  open_.push_back(std::move(capture));
  return cudaSuccess;
}

/// Whether some node is not one that the origin's last nodes come after.
bool Captures::is_unjoined(const Capture& capture) {
  std::vector<bool> is_joined(capture.graph->nodes.size());
  std::vector<CUgraphNode_st*> open = capture.origin->tips;
  while (!open.empty()) {
    const CUgraphNode_st* node = open.back();
    open.pop_back();
    if (!is_joined[node->position]) {
      is_joined[node->position] = true;
      open.insert(open.end(), node->after.begin(), node->after.end());
    }
  }
  return std::count(is_joined.begin(), is_joined.end(), false) != 0;
}

cudaError_t Captures::end(CUstream_st& stream, CUgraph_st** graph) {
  *graph = nullptr;
  const std::shared_ptr<Capture> capture = stream.capture;
  if (!capture) {
    return cudaErrorIllegalState;
  }
  if (capture->origin != &stream) {
    capture->is_broken = true;
    return cudaErrorStreamCaptureUnmatched;
  }
  if (capture->mode != cudaStreamCaptureModeRelaxed &&
      capture->thread != std::this_thread::get_id()) {
    return cudaErrorStreamCaptureWrongThread;
  }
  const bool unjoined = is_unjoined(*capture);
  for (CUstream_st* joined : capture->streams) {
    joined->capture = nullptr;
    joined->tips.clear();
  }
  std::erase(open_, capture);
  capture->is_over = true;
  CUgraph_st* made = std::exchange(capture->graph, nullptr);
  if (capture->is_broken || unjoined) {
    delete made;
    return capture->is_broken ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined;
  }
  *graph = made;
  return cudaSuccess;
}

cudaError_t Captures::record(CUstream_st& stream, Piece piece) {
  if (stream.capture->is_broken) {
    return cudaErrorStreamCaptureInvalidated;
  }
  stream.tips = {stream.capture->graph->add(std::move(piece), stream.tips)};
  return cudaSuccess;
}

cudaError_t Captures::wait_for_event(CUstream_st& stream, CUevent_st& event) {
  if (stream.capture && stream.capture->is_broken) {
    return cudaErrorStreamCaptureInvalidated;
  }
  if (!event.capture) {  // a captured stream waits for work outside of the capture
    stream.capture->is_broken = true;
    return cudaErrorStreamCaptureIsolation;
  }
  if (event.capture->is_over) {  // its nodes run with the graph, if ever
    if (stream.capture) {
      stream.capture->is_broken = true;
    }
    return cudaErrorStreamCaptureIsolation;
  }
  if (event.capture->is_broken) {
    return cudaErrorStreamCaptureInvalidated;
  }
  if (stream.capture && stream.capture != event.capture) {
    stream.capture->is_broken = event.capture->is_broken = true;
    return cudaErrorStreamCaptureMerge;
  }
  if (stream.is_legacy) {
    event.capture->is_broken = true;
    return cudaErrorStreamCaptureImplicit;
  }
  if (!stream.capture) {
    stream.capture = event.capture;
    stream.capture->streams.push_back(&stream);
    stream.tips.clear();
  }
  for (CUgraphNode_st* tip : event.tips) {
    if (std::find(stream.tips.begin(), stream.tips.end(), tip) == stream.tips.end()) {
      stream.tips.push_back(tip);
    }
  }
  return cudaSuccess;
}

bool Captures::comes_before(const CUevent_st& event, const CUstream_st& stream) const {
  if (!stream.capture || stream.capture != event.capture) {
    return false;
  }
  std::set<const CUgraphNode_st*> before(stream.tips.begin(), stream.tips.end());
  std::vector<const CUgraphNode_st*> open(before.begin(), before.end());
  while (!open.empty()) {
    const CUgraphNode_st* node = open.back();
    open.pop_back();
    for (const CUgraphNode_st* earlier : node->after) {
      if (before.insert(earlier).second) {
        open.push_back(earlier);
      }
    }
  }
  return std::all_of(event.tips.begin(), event.tips.end(),
                     [&](const CUgraphNode_st* tip) { return before.count(tip) > 0; });
}

void Captures::leave(CUstream_st& stream) {
  if (!stream.capture) {
    return;
  }
  const std::shared_ptr<Capture> capture = stream.capture;
  if (capture->origin == &stream) {  // nobody can end it any more
    capture->is_broken = capture->is_over = true;
    for (CUstream_st* joined : capture->streams) {
      joined->capture = nullptr;
      joined->tips.clear();
    }
    delete std::exchange(capture->graph, nullptr);
    std::erase(open_, capture);
  } else {
    std::erase(capture->streams, &stream);
  }
}

cudaError_t Captures::check_unsafe_call() {
  if (thread_mode == cudaStreamCaptureModeRelaxed) {
    return cudaSuccess;
  }
  cudaError_t error = cudaSuccess;
  for (const std::shared_ptr<Capture>& capture : open_) {
    const bool is_mine = capture->thread == std::this_thread::get_id();
    const bool concerns = is_mine ? capture->mode != cudaStreamCaptureModeRelaxed
                                  : capture->mode == cudaStreamCaptureModeGlobal &&
                                        thread_mode == cudaStreamCaptureModeGlobal;
    if (concerns) {
      capture->is_broken = true;
      error = cudaErrorStreamCaptureUnsupported;
    }
  }
  return error;
}

cudaError_t Captures::check_legacy(const CUstream_st& stream, bool breaks) {
  cudaError_t error = cudaSuccess;
  for (const std::shared_ptr<Capture>& capture : open_) {
    for (const CUstream_st* captured : capture->streams) {
      if (stream.is_legacy && captured->is_blocking() && captured->device == stream.device) {
        capture->is_broken = capture->is_broken || breaks;
        error = cudaErrorStreamCaptureImplicit;
      }
    }
  }
  return error;
}

cudaError_t Captures::check_wait(CUstream_st& stream) {
  if (stream.capture) {
    stream.capture->is_broken = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  if (const cudaError_t error = check_legacy(stream, true); error != cudaSuccess) {
    return error;
  }
  return check_unsafe_call();
}

cudaError_t Captures::check_wait(const CUevent_st& event) {
  if (event.capture) {
    event.capture->is_broken = true;
    return cudaErrorCapturedEvent;
  }
  return check_unsafe_call();
}

cudaError_t Captures::check_wait_for_device(int device) {
  cudaError_t error = cudaSuccess;
  for (const std::shared_ptr<Capture>& capture : open_) {
    for (const CUstream_st* captured : capture->streams) {
      if (captured->device == device) {
        capture->is_broken = true;
        error = cudaErrorStreamCaptureUnsupported;
      }
    }
  }
  return error != cudaSuccess ? error : check_unsafe_call();
}

}  // namespace fake_cuda
