#pragma once

#include <mpi.h>

#include "bare_kernels.h"

namespace lockstep::benchmarks {

/// MPI has no 16-bit floating-point type: what a user adds.
template <c10::ScalarType dtype>
inline void sum_operation(void* from, void* into, int* count, MPI_Datatype*) {
  add(dtype, from, into, *count);
}

struct MpiSum {
  MPI_Datatype type = MPI_FLOAT;
  MPI_Op operation = MPI_SUM;
  const char* variant = "mpi";

  explicit MpiSum(c10::ScalarType dtype) {
    if (dtype == c10::ScalarType::Float) {
      return;
    }
    variant = "mpi-custom-op";
    MPI_Type_contiguous(2, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    MPI_Op_create(dtype == c10::ScalarType::Half ? sum_operation<c10::ScalarType::Half>
                                                 : sum_operation<c10::ScalarType::BFloat16>,
                  /*commute=*/1, &operation);
  }
  ~MpiSum() {
    if (operation != MPI_SUM) {
      MPI_Op_free(&operation);
      MPI_Type_free(&type);
    }
  }
  MpiSum(const MpiSum&) = delete;
  MpiSum& operator=(const MpiSum&) = delete;
};

}  // namespace lockstep::benchmarks
