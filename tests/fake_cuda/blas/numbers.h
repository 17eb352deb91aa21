#pragma once

#include <immintrin.h>
#include <library_types.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

/// The numbers of matrices: how they lie in memory and what they are summed in.
namespace fake_cuda {

struct Half {
  uint16_t bits = 0;

  Half() = default;
  /// Rounds to the nearest, ties to even.
  explicit Half(float value) : bits(_cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT)) {}
  explicit operator float() const { return _cvtsh_ss(bits); }
};

struct Bfloat16 {
  uint16_t bits = 0;

  Bfloat16() = default;
  /// Rounds to the nearest, ties to even. A NaN stays one.
  explicit Bfloat16(float value) {
    const auto wide = std::bit_cast<uint32_t>(value);
    bits = std::isnan(value) ? 0x7fff
                             : static_cast<uint16_t>((wide + 0x7fff + (wide >> 16 & 1)) >> 16);
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

template <typename Real>
struct Complex {
  Real real = 0;
  Real imaginary = 0;
};

template <typename Number>
inline constexpr bool is_complex = false;
template <typename Real>
inline constexpr bool is_complex<Complex<Real>> = true;

/// a * b + sum, with one rounding for each real product: the same bits on all machines.
inline float multiply_add(float a, float b, float sum) {
  return __builtin_fmaf(a, b, sum);
}
inline double multiply_add(double a, double b, double sum) {
  return __builtin_fma(a, b, sum);
}
template <typename Real>
Complex<Real> multiply_add(Complex<Real> a, Complex<Real> b, Complex<Real> sum) {
  return {
      multiply_add(-a.imaginary, b.imaginary, multiply_add(a.real, b.real, sum.real)),
      multiply_add(a.imaginary, b.real, multiply_add(a.real, b.imaginary, sum.imaginary)),
  };
}

inline float conjugate(float value) {
  return value;
}
inline double conjugate(double value) {
  return value;
}
template <typename Real>
Complex<Real> conjugate(Complex<Real> value) {
  return {value.real, -value.imaginary};
}

/// Whether elements of one type are summed in the other.
template <typename Element, typename Sum>
inline constexpr bool is_summed_in =
    is_complex<Sum> || is_complex<Element> || std::is_same_v<Element, double>
        ? std::is_same_v<Element, Sum>
        : std::is_same_v<Sum, float> || std::is_same_v<Element, float>;

/// 0 for a type that products do not know.
inline size_t bytes_of(cudaDataType type) {
  switch (type) {
    case CUDA_R_16F:
    case CUDA_R_16BF:
      return 2;
    case CUDA_R_32F:
      return 4;
    case CUDA_R_64F:
    case CUDA_C_32F:
      return 8;
    case CUDA_C_64F:
      return 16;
    default:
      return 0;
  }
}

/// Calls `use` with a pointer of the element's type. `bytes_of(type)` is not 0.
template <typename Use>
void with_elements(const void* memory, cudaDataType type, const Use& use) {
  switch (type) {
    case CUDA_R_16F:
      return use(static_cast<const Half*>(memory));
    case CUDA_R_16BF:
      return use(static_cast<const Bfloat16*>(memory));
    case CUDA_R_64F:
      return use(static_cast<const double*>(memory));
    case CUDA_C_32F:
      return use(static_cast<const Complex<float>*>(memory));
    case CUDA_C_64F:
      return use(static_cast<const Complex<double>*>(memory));
    default:
      return use(static_cast<const float*>(memory));
  }
}

}  // namespace fake_cuda
