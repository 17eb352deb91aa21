#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

namespace lockstep {
class Communicator;
}

namespace lockstep::detail {

/// OMP_NUM_THREADS; 0 if that is not set.
int threads_of_environment();

/// Compute threads for this rank: OMP_NUM_THREADS if set, else the cores that the ranks of this
/// node may run on, divided by their number, at least 1. Collective.
int threads_of_this_rank(Communicator& control);

/// Makes LibTorch compute with `threads` threads, and starts them with blocked signals (all but
/// those of faults), so that a signal's handler runs in a thread of the program.
void start_compute_threads(int threads);

/// Makes malloc keep freed memory instead of returning it to the system: LibTorch frees and
/// allocates the same large tensors every step, and page faults then cost more than the
/// arithmetic (AdamW over 14 x 1M floats: 42 ms against 74 ms).
void keep_freed_memory();

/// Gives what malloc, and LibTorch's allocator of `device`, kept back to the system, once: after
/// the model's tensors have moved into flat storage their old memory is of no more use.
void release_freed_memory(c10::Device device);

}  // namespace lockstep::detail
