#pragma once

#include <library_types.h>

#include <cstdint>
#include <vector>

#include "numbers.h"

namespace fake_cuda {

/// A matrix as it is multiplied: transposition and order of storage are steps between elements.
struct Factor {
  const void* memory = nullptr;
  cudaDataType type = CUDA_R_32F;
  int64_t row_step = 1;
  int64_t column_step = 1;
  bool conjugated = false;
};

/// The product of a (m x k) and b (k x n), by columns. Each element is one sum, in the order of k,
/// with one rounding for each term: its bits depend on nothing else.
template <typename Sum>
std::vector<Sum> sums_of_products(const Factor& a, const Factor& b, int64_t m, int64_t n,
                                  int64_t k);

extern template std::vector<float> sums_of_products(const Factor&, const Factor&, int64_t, int64_t,
                                                    int64_t);
extern template std::vector<double> sums_of_products(const Factor&, const Factor&, int64_t, int64_t,
                                                     int64_t);
extern template std::vector<Complex<float>> sums_of_products(const Factor&, const Factor&, int64_t,
                                                             int64_t, int64_t);
extern template std::vector<Complex<double>> sums_of_products(const Factor&, const Factor&, int64_t,
                                                              int64_t, int64_t);

}  // namespace fake_cuda
