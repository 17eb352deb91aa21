// Captures and graphs: what programs call.
#include <cstdio>

#include "../common/faults.h"
#include "capture.h"
#include "contexts.h"
#include "enqueue.h"
#include "errors.h"

using namespace fake_cuda;

namespace {

cudaStreamCaptureStatus status_of(const CUstream_st& stream) {
  if (!stream.capture) {
    return cudaStreamCaptureStatusNone;
  }
  return stream.capture->is_broken ? cudaStreamCaptureStatusInvalidated
                                   : cudaStreamCaptureStatusActive;
}

}  // namespace

extern "C" {

FAKE_CUDA_EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  if (mode == nullptr || *mode < cudaStreamCaptureModeGlobal ||
      *mode > cudaStreamCaptureModeRelaxed) {
    return fail(cudaErrorInvalidValue);
  }
  *mode = exchange_capture_mode(*mode);
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t handle,
                                                    cudaStreamCaptureMode mode) {
  FAKE_CUDA_ENTER();
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  CUstream_st* stream = Streams::get().find(handle);
  if (stream == nullptr) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  return fail(Captures::get().begin(*stream, mode));
}

FAKE_CUDA_EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  FAKE_CUDA_ENTER();
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  CUstream_st* stream = Streams::get().find(handle);
  if (stream == nullptr) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  const cudaError_t error = Captures::get().end(*stream, graph);
  if (error == cudaSuccess) {
    Graphs::get().add(*graph);
    count("captures");
  }
  return fail(error);
}

FAKE_CUDA_EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t handle,
                                                   cudaStreamCaptureStatus* status) {
  return cudaStreamGetCaptureInfo(handle, status, nullptr, nullptr, nullptr, nullptr, nullptr);
}

FAKE_CUDA_EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle,
                                                      cudaStreamCaptureStatus* status,
                                                      unsigned long long* id, cudaGraph_t* graph,
                                                      const cudaGraphNode_t** dependencies,
                                                      const cudaGraphEdgeData** edges,
                                                      size_t* number_of_dependencies) {
  FAKE_CUDA_ENTER();
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  CUstream_st* stream = Streams::get().find(handle);
  if (stream == nullptr) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  // CUDA's manual: asked of the legacy stream while a blocking stream captures; breaks nothing.
  if (const cudaError_t error = Captures::get().check_legacy(*stream, false);
      error != cudaSuccess) {
    return fail(error);
  }
  *status = status_of(*stream);
  if (*status != cudaStreamCaptureStatusActive) {
    return cudaSuccess;
  }
  if (id != nullptr) {
    *id = stream->capture->id;
  }
  if (graph != nullptr) {
    *graph = stream->capture->graph;
  }
  if (dependencies != nullptr) {
    *dependencies = stream->tips.data();
  }
  if (edges != nullptr) {
    *edges = nullptr;
  }
  if (number_of_dependencies != nullptr) {
    *number_of_dependencies = stream->tips.size();
  }
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes,
                                               size_t* number) {
  FAKE_CUDA_ENTER();
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  if (!Graphs::get().contains(graph)) {
    return fail(cudaErrorInvalidValue);
  }
  if (nodes != nullptr) {
    for (size_t i = 0; i < *number; ++i) {
      nodes[i] = i < graph->nodes.size() ? graph->nodes[i].get() : nullptr;
    }
  }
  *number = graph->nodes.size();
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node,
                                                          cudaGraphNode_t* dependencies,
                                                          cudaGraphEdgeData* edges,
                                                          size_t* number) {
  FAKE_CUDA_ENTER();
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  for (size_t i = 0; dependencies != nullptr && i < *number; ++i) {
    dependencies[i] = i < node->after.size() ? node->after[i] : nullptr;
    if (edges != nullptr) {
      edges[i] = {};
    }
  }
  *number = node->after.size();
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned) {
  FAKE_CUDA_ENTER();
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  if (!Graphs::get().contains(graph)) {
    return fail(cudaErrorInvalidValue);
  }
  std::FILE* file = std::fopen(path, "w");
  if (file == nullptr) {
    return fail(cudaErrorOperatingSystem);
  }
  std::fputs("digraph graph_of_cuda {\n", file);
  for (const auto& node : graph->nodes) {
    std::fprintf(file, "  n%zu [label=\"%s\"];\n", node->position, node->piece.what);
    for (const CUgraphNode_st* before : node->after) {
      std::fprintf(file, "  n%zu -> n%zu;\n", before->position, node->position);
    }
  }
  std::fputs("}\n", file);
  std::fclose(file);
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  FAKE_CUDA_ENTER();
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  if (!Graphs::get().remove(graph)) {
    return fail(cudaErrorInvalidValue);
  }
  lock.unlock();  // what the nodes hold may call CUDA when it goes
  delete graph;
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* exec, cudaGraph_t graph,
                                                           unsigned long long flags) {
  FAKE_CUDA_ENTER();
  // Both mean nothing here: no memory is allocated by nodes, and the seed stands for priorities.
  constexpr unsigned long long known =
      cudaGraphInstantiateFlagAutoFreeOnLaunch | cudaGraphInstantiateFlagUseNodePriority;
  if ((flags & ~known) != 0) {
    return refuse(cudaErrorNotSupported, "flags of cudaGraphInstantiate");
  }
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  if (!Graphs::get().contains(graph)) {
    return fail(cudaErrorInvalidValue);
  }
  *exec = new CUgraphExec_st(*graph);
  Graphs::get().add(*exec);
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                                  unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(exec, graph, flags);
}

FAKE_CUDA_EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  FAKE_CUDA_ENTER();
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  if (!Graphs::get().remove(exec)) {
    return fail(cudaErrorInvalidValue);
  }
  lock.unlock();
  delete exec;
  return cudaSuccess;
}

FAKE_CUDA_EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
  FAKE_CUDA_ENTER();
  WorkQueue::Lock lock(WorkQueue::get().mutex());
  CUstream_st* stream = Streams::get().find(handle);
  if (stream == nullptr) {
    return fail(cudaErrorInvalidResourceHandle);
  }
  if (!Graphs::get().contains(exec)) {
    return fail(cudaErrorInvalidValue);
  }
  if (stream->capture) {
    stream->capture->is_broken = true;
    return refuse(cudaErrorNotSupported, "launch of a graph within a capture");
  }
  if (const cudaError_t error = Captures::get().check_legacy(*stream, true); error != cudaSuccess) {
    return fail(error);
  }
  count("graph launches");
  exec->launch(*stream);
  return answer();
}

}  // extern "C"
