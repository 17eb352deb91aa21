#pragma once

#include <library_types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

/// What cublasLt does with a product before it is stored.
namespace fake_cuda {

/// A vector or matrix that an epilogue reads or writes.
struct Operand {
  void* memory = nullptr;
  cudaDataType type = CUDA_R_32F;
  int64_t leading = 0;
  int64_t stride = 0;  // from one of a batch to the next
};

struct Epilogue {
  enum class Activation { none, relu, gelu };
  /// Of which matrix the sums over k (or, for d, over columns) are the gradient of a bias.
  enum class BiasGradient { none, of_d, of_a, of_b };

  Activation activation = Activation::none;
  bool adds_bias = false;
  bool keeps_input = false;  // of the activation, in `input`
  bool is_gradient = false;  // of the activation, whose input is in `input`
  BiasGradient bias_gradient = BiasGradient::none;
  Operand bias;  // or its gradient
  /// Of the activation: for relu one bit for each element, for gelu the value.
  Operand input;
};

/// Applies an epilogue to one result, in fp64: only what is stored is rounded. Call inside of Work.
class EpilogueRun {
 public:
  EpilogueRun(const Epilogue& epilogue, int64_t rows, int64_t columns, int64_t batch);

  /// Of the value at (row, column) what is stored. Columns ascend.
  double finish(double value, int64_t row, int64_t column);
  /// Writes the gradient of the bias that finish() has summed.
  void end();

 private:
  double read_input(int64_t row, int64_t column) const;
  void write_input(double value, int64_t row, int64_t column);

  const Epilogue& epilogue_;
  char* input_ = nullptr;
  void* bias_ = nullptr;
  std::vector<double> bias_values_;
  std::vector<double> gradient_;
};

/// The tangens hyperbolicus form, as in cublasLt.
double gelu(double value);
double gelu_gradient(double value);

/// Element `index`, of a real type.
double load_real(const void* memory, cudaDataType type, int64_t index);
void store_real(void* memory, cudaDataType type, int64_t index, double value);

}  // namespace fake_cuda
