#include "product.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "../common/work.h"
#include "sums_of_products.h"

namespace fake_cuda {
namespace {

/// How much of the workspace is overwritten: enough to find one that was given back or is shared.
constexpr size_t kTouchedWorkspace = 4096;

Complex<double> load_scale(const void* memory, cudaDataType type) {
  switch (type) {
    case CUDA_C_32F: {
      const auto* number = static_cast<const Complex<float>*>(memory);
      return {number->real, number->imaginary};
    }
    case CUDA_C_64F:
      return *static_cast<const Complex<double>*>(memory);
    default:
      return {load_real(memory, type, 0), 0};
  }
}

char* matrix_of_batch(const Matrix& matrix, int64_t batch) {
  return static_cast<char*>(matrix.memory) +
         batch * matrix.stride * static_cast<int64_t>(bytes_of(matrix.type));
}

/// Calls `use` for the bytes that the matrix covers.
template <typename Use>
void for_each_range(const Matrix& matrix, int64_t batch, const Use& use) {
  const auto element = static_cast<int64_t>(bytes_of(matrix.type));
  const int64_t lines = matrix.row_major ? matrix.rows : matrix.columns;
  const int64_t length = matrix.row_major ? matrix.columns : matrix.rows;
  const char* memory = matrix_of_batch(matrix, batch);
  if (lines == 0 || length == 0) {
    return;
  }
  if (length == matrix.leading) {
    use(memory, lines * length * element);
    return;
  }
  for (int64_t line = 0; line < lines; ++line) {
    use(memory + line * matrix.leading * element, length * element);
  }
}

Factor factor_of(const Matrix& matrix, cublasOperation_t operation, int64_t batch) {
  Factor factor;
  factor.memory = matrix_of_batch(matrix, batch);
  factor.type = matrix.type;
  factor.row_step = matrix.row_major ? matrix.leading : 1;
  factor.column_step = matrix.row_major ? 1 : matrix.leading;
  if (operation != CUBLAS_OP_N) {
    std::swap(factor.row_step, factor.column_step);
  }
  factor.conjugated = operation == CUBLAS_OP_C;
  return factor;
}

template <typename Sum>
Sum scale_as(Complex<double> value) {
  if constexpr (std::is_same_v<Sum, Complex<float>>) {
    return {static_cast<float>(value.real), static_cast<float>(value.imaginary)};
  } else if constexpr (std::is_same_v<Sum, Complex<double>>) {
    return value;
  } else {
    return static_cast<Sum>(value.real);
  }
}

/// Scales the sums, adds c, and stores the result as the type of d.
template <typename Sum>
void store(const Product& product, int64_t batch, const std::vector<Sum>& sums) {
  const auto alpha = scale_as<Sum>(product.alpha.value());
  const Complex<double> full_beta = product.beta.value();
  const auto beta = scale_as<Sum>(full_beta);
  const bool adds_c = full_beta.real != 0 || full_beta.imaginary != 0;
  const Matrix& c = product.c;
  const Matrix& d = product.d;
  if (adds_c) {
    for_each_range(c, batch, read_bytes);
  }
  for_each_range(d, batch, write_bytes);
  EpilogueRun epilogue(product.epilogue, d.rows, d.columns, batch);
  const auto place = [](const Matrix& matrix, int64_t row, int64_t column) {
    return matrix.row_major ? row * matrix.leading + column : column * matrix.leading + row;
  };
  with_elements(matrix_of_batch(c, batch), d.type, [&](const auto* from) {
    using Element = std::remove_cvref_t<decltype(*from)>;
    if constexpr (is_summed_in<Element, Sum>) {
      auto* to = reinterpret_cast<Element*>(matrix_of_batch(d, batch));
      for (int64_t column = 0; column < d.columns; ++column) {
        for (int64_t row = 0; row < d.rows; ++row) {
          Sum value = multiply_add(alpha, sums[column * d.rows + row], Sum{});
          if (adds_c) {
            value = multiply_add(beta, static_cast<Sum>(from[place(c, row, column)]), value);
          }
          if constexpr (!is_complex<Sum>) {
            value = static_cast<Sum>(epilogue.finish(value, row, column));
          }
          to[place(d, row, column)] = static_cast<Element>(value);
        }
      }
    }
  });
  epilogue.end();
}

/// The gradient of a bias of a or b: its sums over k.
void sum_over_k(const Product& product, int64_t batch) {
  const bool of_a = product.epilogue.bias_gradient == Epilogue::BiasGradient::of_a;
  const Factor factor = of_a ? factor_of(product.a, product.operation_a, batch)
                             : factor_of(product.b, product.operation_b, batch);
  const Matrix& matrix = of_a ? product.a : product.b;
  const int64_t lines = of_a ? product.d.rows : product.d.columns;
  const int64_t k = matrix.rows * matrix.columns / lines;
  const Operand& bias = product.epilogue.bias;
  const size_t element = bytes_of(bias.type);
  char* to = static_cast<char*>(bias.memory) + batch * bias.stride * element;
  write_bytes(to, lines * element);
  for (int64_t line = 0; line < lines; ++line) {
    float sum = 0;
    for (int64_t i = 0; i < k; ++i) {
      const int64_t place = of_a ? line * factor.row_step + i * factor.column_step
                                 : line * factor.column_step + i * factor.row_step;
      sum += static_cast<float>(load_real(factor.memory, factor.type, place));
    }
    store_real(to, bias.type, line, sum);
  }
}

template <typename Sum>
void multiply(const Product& product) {
  const int64_t k = product.operation_a == CUBLAS_OP_N ? product.a.columns : product.a.rows;
  for (int64_t batch = 0; batch < product.batches; ++batch) {
    for_each_range(product.a, batch, read_bytes);
    for_each_range(product.b, batch, read_bytes);
    const std::vector<Sum> sums = sums_of_products<Sum>(
        factor_of(product.a, product.operation_a, batch),
        factor_of(product.b, product.operation_b, batch), product.d.rows, product.d.columns, k);
    if (product.epilogue.bias_gradient == Epilogue::BiasGradient::of_a ||
        product.epilogue.bias_gradient == Epilogue::BiasGradient::of_b) {
      sum_over_k(product, batch);
    }
    store(product, batch, sums);
  }
}

void run(const Product& product) {
  if (product.workspace != nullptr && product.workspace_bytes > 0) {
    const size_t touched = std::min(product.workspace_bytes, kTouchedWorkspace);
    write_bytes(product.workspace, touched);
    std::memset(product.workspace, 0xff, touched);
  }
  switch (product.d.type) {
    case CUDA_R_64F:
      return multiply<double>(product);
    case CUDA_C_32F:
      return multiply<Complex<float>>(product);
    case CUDA_C_64F:
      return multiply<Complex<double>>(product);
    default:
      return multiply<float>(product);
  }
}

bool is_half_wide(cudaDataType type) {
  return type == CUDA_R_16F || type == CUDA_R_16BF;
}

bool types_are_known(const Product& product) {
  const cudaDataType from = product.a.type;
  const cudaDataType to = product.d.type;
  if (product.b.type != from || product.c.type != to || bytes_of(from) == 0) {
    return false;
  }
  switch (product.compute) {
    case CUBLAS_COMPUTE_32F:
    case CUBLAS_COMPUTE_32F_PEDANTIC:
      return (from == to && from != CUDA_R_64F && from != CUDA_C_64F) ||
             (is_half_wide(from) && to == CUDA_R_32F);
    case CUBLAS_COMPUTE_32F_FAST_16F:
    case CUBLAS_COMPUTE_32F_FAST_16BF:
    case CUBLAS_COMPUTE_32F_FAST_TF32:
      return from == to && (from == CUDA_R_32F || from == CUDA_C_32F);
    case CUBLAS_COMPUTE_64F:
    case CUBLAS_COMPUTE_64F_PEDANTIC:
      return from == to && (from == CUDA_R_64F || from == CUDA_C_64F);
    default:
      return false;  // above all sums in fp16 and of integers
  }
}

std::string mistake_in(const char* name, const Matrix& matrix, int64_t rows, int64_t columns) {
  const int64_t length = matrix.row_major ? columns : rows;
  const std::string matrix_name = std::string(" of ") + name;
  if (matrix.rows != rows || matrix.columns != columns) {
    return "the shape" + matrix_name + " is " + std::to_string(matrix.rows) + " x " +
           std::to_string(matrix.columns) + ", not " + std::to_string(rows) + " x " +
           std::to_string(columns);
  }
  if (matrix.leading < std::max<int64_t>(1, length)) {
    return "the leading dimension" + matrix_name + " is " + std::to_string(matrix.leading) +
           ", less than " + std::to_string(std::max<int64_t>(1, length));
  }
  if (matrix.memory == nullptr && rows > 0 && columns > 0) {
    return "the address" + matrix_name + " is null";
  }
  return "";
}

bool is_operation(cublasOperation_t operation) {
  return operation == CUBLAS_OP_N || operation == CUBLAS_OP_T || operation == CUBLAS_OP_C;
}

}  // namespace

Scale::Scale(const void* scalar, cudaDataType type, bool on_device) : type_(type) {
  if (on_device) {
    on_device_ = scalar;
  } else {
    value_ = load_scale(scalar, type);
  }
}

Complex<double> Scale::value() const {
  if (on_device_ == nullptr) {
    return value_;
  }
  read_bytes(on_device_, bytes_of(type_));
  return load_scale(on_device_, type_);
}

bool Scale::is_zero() const {
  return on_device_ == nullptr && value_.real == 0 && value_.imaginary == 0;
}

cublasStatus_t check_product(const Product& product) {
  const Matrix& a = product.a;
  const Matrix& d = product.d;
  if (!is_operation(product.operation_a) || !is_operation(product.operation_b)) {
    return refuse(product.name, "an operation is neither N, T nor C");
  }
  if (!types_are_known(product)) {
    return refuse(product.name,
                  "products with these types are not known: compute type " +
                      std::to_string(product.compute) + ", a " + std::to_string(a.type) + ", b " +
                      std::to_string(product.b.type) + ", c " + std::to_string(product.c.type) +
                      ", d " + std::to_string(d.type),
                  CUBLAS_STATUS_NOT_SUPPORTED);
  }
  const int64_t k = product.operation_a == CUBLAS_OP_N ? a.columns : a.rows;
  if (d.rows < 0 || d.columns < 0 || k < 0 || product.batches < 0) {
    return refuse(product.name, "a size is negative");
  }
  const bool a_lies = product.operation_a == CUBLAS_OP_N;
  const bool b_lies = product.operation_b == CUBLAS_OP_N;
  std::string mistake = mistake_in("a", a, a_lies ? d.rows : k, a_lies ? k : d.rows);
  if (mistake.empty()) {
    mistake = mistake_in("b", product.b, b_lies ? k : d.columns, b_lies ? d.columns : k);
  }
  if (mistake.empty() && !product.beta.is_zero()) {
    mistake = mistake_in("c", product.c, d.rows, d.columns);
  }
  if (mistake.empty()) {
    mistake = mistake_in("d", d, d.rows, d.columns);
  }
  return mistake.empty() ? CUBLAS_STATUS_SUCCESS : refuse(product.name, mistake);
}

cublasStatus_t enqueue_product(cudaStream_t stream, const Product& product) {
  const cublasStatus_t status = check_product(product);
  if (status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  if (product.d.rows == 0 || product.d.columns == 0 || product.batches == 0) {
    return CUBLAS_STATUS_SUCCESS;
  }
  return status_of(enqueue(stream, product.name, [product] {
    run(product);
    return true;
  }));
}

cublasStatus_t status_of(cudaError_t error) {
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

cublasStatus_t refuse(const std::string& function, const std::string& why, cublasStatus_t status) {
  std::fprintf(stderr, "fake cuda: %s: %s\n", function.c_str(), why.c_str());
  return status;
}

}  // namespace fake_cuda
