#pragma once

namespace lockstep {

/// What to do with a parameter that got no gradient in a synchronising backward.
enum class UnusedParameters {
  error,  // throws Error on every rank, before any update; names the parameters and the rank
  zeros,  // treats the gradient as zero
  // Unused on all ranks: the gradient stays undefined, so the optimizer neither updates the
  // parameter nor counts an update for it. Used on some ranks: the others contribute zeros.
  detect,
};

/// How buffers (for example BatchNorm statistics) are kept equal on all ranks, once per finish().
/// Integer buffers are never averaged; they take rank 0's value.
enum class BufferPolicy { none, broadcast, average };

}  // namespace lockstep
