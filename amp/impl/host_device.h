#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

/// Marks functions that CPU and CUDA kernels compile from the same source.
#ifdef __CUDACC__
#define LOCKSTEP_HOST_DEVICE __host__ __device__ inline
#else
#define LOCKSTEP_HOST_DEVICE inline
#endif
