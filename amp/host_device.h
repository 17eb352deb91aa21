#pragma once

/// Marks functions that CPU and CUDA kernels compile from the same source.
#ifdef __CUDACC__
#define LOCKSTEP_HOST_DEVICE __host__ __device__ inline
#else
#define LOCKSTEP_HOST_DEVICE inline
#endif
