#pragma once

#include "streams.h"

/// How pieces come onto streams; work.h's enqueue() is built on it.
namespace fake_cuda {

/// Appends to the stream or to the graph that it records. Needs enter() before. The lock is held.
cudaError_t enqueue_piece(CUstream_st& stream, Piece piece);

}  // namespace fake_cuda
