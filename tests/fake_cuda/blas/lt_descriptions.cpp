#include "lt_descriptions.h"

#include <cstring>
#include <string>

namespace fake_cuda {
namespace {

/// An attribute has exactly the size of its field.
template <typename Field>
cublasStatus_t copy_to(Field* field, const void* from, size_t bytes) {
  if (from == nullptr || bytes != sizeof(Field)) {
    return refuse("cublasLt", "an attribute has " + std::to_string(bytes) + " bytes instead of " +
                                  std::to_string(sizeof(Field)));
  }
  std::memcpy(field, from, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t refuse_attribute(const char* of, int attribute) {
  return refuse(
      "cublasLt",
      std::string("attribute ") + std::to_string(attribute) + " of " + of + " is not known",
      CUBLAS_STATUS_NOT_SUPPORTED);
}

}  // namespace

cublasStatus_t LtProduct::set(cublasLtMatmulDescAttributes_t attribute, const void* from,
                              size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
      return copy_to(&compute, from, bytes);
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
      return copy_to(&scale_type, from, bytes);
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
      return copy_to(&pointer_mode, from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return copy_to(&operation_a, from, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return copy_to(&operation_b, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return copy_to(&epilogue, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return copy_to(&bias, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
      return copy_to(&bias_stride, from, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return copy_to(&bias_type, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return copy_to(&auxiliary, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return copy_to(&auxiliary_leading, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
      return copy_to(&auxiliary_stride, from, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
      return copy_to(&auxiliary_type, from, bytes);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
      return copy_to(&processors, from, bytes);
    default:
      return refuse_attribute("a product", attribute);
  }
}

cublasStatus_t LtMatrix::set(cublasLtMatrixLayoutAttribute_t attribute, const void* from,
                             size_t bytes) {
  switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
      return copy_to(&type, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
      return copy_to(&order, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
      return copy_to(&rows, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_COLS:
      return copy_to(&columns, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_LD:
      return copy_to(&leading, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
      return copy_to(&batches, from, bytes);
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
      return copy_to(&stride, from, bytes);
    default:
      return refuse_attribute("a matrix", attribute);
  }
}

Matrix LtMatrix::at(const void* memory) const {
  return Matrix{const_cast<void*>(memory),     type,    static_cast<int64_t>(rows),
                static_cast<int64_t>(columns), leading, stride,
                order == CUBLASLT_ORDER_ROW};
}

cublasStatus_t LtPreference::set(cublasLtMatmulPreferenceAttributes_t attribute, const void* from,
                                 size_t bytes) {
  uint32_t ignored = 0;
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return copy_to(&workspace_bytes, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return copy_to(&alignment_a, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return copy_to(&alignment_b, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return copy_to(&alignment_c, from, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return copy_to(&alignment_d, from, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
      return copy_to(&ignored, from, bytes);  // of several algorithms; there is one
    default:
      return refuse_attribute("a preference", attribute);
  }
}

cublasStatus_t epilogue_of(const LtProduct& product, const LtMatrix& d, Epilogue* epilogue) {
  using Activation = Epilogue::Activation;
  using BiasGradient = Epilogue::BiasGradient;
  constexpr uint32_t kRelu = CUBLASLT_EPILOGUE_RELU;
  constexpr uint32_t kBias = CUBLASLT_EPILOGUE_BIAS;
  constexpr uint32_t kGelu = CUBLASLT_EPILOGUE_GELU;
  constexpr uint32_t kAuxiliary = CUBLASLT_EPILOGUE_RELU_AUX & ~kRelu;
  const uint32_t asked = product.epilogue;
  switch (asked) {
    case CUBLASLT_EPILOGUE_DEFAULT:
      break;
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_RELU_AUX:
    case CUBLASLT_EPILOGUE_RELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
      epilogue->activation = (asked & kRelu) != 0   ? Activation::relu
                             : (asked & kGelu) != 0 ? Activation::gelu
                                                    : Activation::none;
      epilogue->adds_bias = (asked & kBias) != 0;
      epilogue->keeps_input = (asked & kAuxiliary) != 0;
      break;
    case CUBLASLT_EPILOGUE_DRELU:
    case CUBLASLT_EPILOGUE_DRELU_BGRAD:
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_DGELU_BGRAD:
      epilogue->activation =
          asked == CUBLASLT_EPILOGUE_DRELU || asked == CUBLASLT_EPILOGUE_DRELU_BGRAD
              ? Activation::relu
              : Activation::gelu;
      epilogue->is_gradient = true;
      if (asked == CUBLASLT_EPILOGUE_DRELU_BGRAD || asked == CUBLASLT_EPILOGUE_DGELU_BGRAD) {
        epilogue->bias_gradient = BiasGradient::of_d;
      }
      break;
    case CUBLASLT_EPILOGUE_BGRADA:
      epilogue->bias_gradient = BiasGradient::of_a;
      break;
    case CUBLASLT_EPILOGUE_BGRADB:
      epilogue->bias_gradient = BiasGradient::of_b;
      break;
    default:
      return refuse("cublasLt", "epilogue " + std::to_string(asked) + " is not known",
                    CUBLAS_STATUS_NOT_SUPPORTED);
  }
  const bool has_bias = epilogue->adds_bias || epilogue->bias_gradient != BiasGradient::none;
  const auto bias_type = product.bias_type < 0 ? d.type : cudaDataType(product.bias_type);
  const auto input_type =
      product.auxiliary_type < 0 ? d.type : cudaDataType(product.auxiliary_type);
  epilogue->bias = {has_bias ? product.bias : nullptr, bias_type, 0, product.bias_stride};
  epilogue->input = {product.auxiliary, input_type, product.auxiliary_leading,
                     product.auxiliary_stride};
  if (asked == CUBLASLT_EPILOGUE_DEFAULT) {
    return CUBLAS_STATUS_SUCCESS;
  }
  if (has_bias && product.bias == nullptr) {
    return refuse("cublasLtMatmul", "the epilogue has a bias, but its address is null");
  }
  if (epilogue->keeps_input || epilogue->is_gradient) {
    const bool is_mask = epilogue->activation == Activation::relu;
    if (product.auxiliary == nullptr || product.auxiliary_leading < static_cast<int64_t>(d.rows) ||
        (is_mask && product.auxiliary_leading % 128 != 0)) {
      return refuse("cublasLtMatmul", "the epilogue's auxiliary matrix is missing or too small");
    }
  }
  const bool types_are_known = bytes_of(d.type) != 0 && d.type != CUDA_C_32F &&
                               d.type != CUDA_C_64F && bytes_of(bias_type) != 0 &&
                               bytes_of(input_type) != 0;
  if (!types_are_known || d.order != CUBLASLT_ORDER_COL) {
    return refuse("cublasLtMatmul", "epilogues with these types or orders are not known",
                  CUBLAS_STATUS_NOT_SUPPORTED);
  }
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace fake_cuda
