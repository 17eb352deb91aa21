#include "sums_of_products.h"

#include <algorithm>
#include <type_traits>

namespace fake_cuda {
namespace {

/// The tile of sums that stays in registers.
template <typename Sum>
struct Tile {
  static constexpr int kRows = is_complex<Sum> ? 4 : 64 / static_cast<int>(sizeof(Sum));
  static constexpr int kColumns = is_complex<Sum> ? 2 : 6;
};

/// Copies `width` lines, one after the other for each k, to `packed`; missing ones are zeros.
template <typename Sum, int width>
void pack_lines(const Factor& factor, int64_t first, int64_t lines, int64_t line_step,
                int64_t k_step, int64_t k, Sum* packed) {
  with_elements(factor.memory, factor.type, [&](const auto* elements) {
    using Element = std::remove_cvref_t<decltype(*elements)>;
    if constexpr (is_summed_in<Element, Sum>) {
      const int64_t count = std::min<int64_t>(width, lines - first);
      for (int64_t line = 0; line < width; ++line) {
        if (line >= count) {
          for (int64_t i = 0; i < k; ++i) {
            packed[i * width + line] = Sum{};
          }
          continue;
        }
        const Element* from = elements + (first + line) * line_step;
        for (int64_t i = 0; i < k; ++i) {
          const auto value = static_cast<Sum>(from[i * k_step]);
          packed[i * width + line] = factor.conjugated ? conjugate(value) : value;
        }
      }
    }
  });
}

/// Sums of one tile that are computed together. Compilers do not find this by themselves.
template <typename Sum>
struct Lanes {
  static constexpr int kWidth = 1;
  Sum sums{};
  void add_product(const Sum* a, Sum b) { sums = multiply_add(*a, b, sums); }
  void store(Sum* to) const { *to = sums; }
};
template <>
struct Lanes<float> {
  static constexpr int kWidth = 8;
  __m256 sums = _mm256_setzero_ps();
  void add_product(const float* a, float b) {
    sums = _mm256_fmadd_ps(_mm256_loadu_ps(a), _mm256_set1_ps(b), sums);
  }
  void store(float* to) const { _mm256_storeu_ps(to, sums); }
};
template <>
struct Lanes<double> {
  static constexpr int kWidth = 4;
  __m256d sums = _mm256_setzero_pd();
  void add_product(const double* a, double b) {
    sums = _mm256_fmadd_pd(_mm256_loadu_pd(a), _mm256_set1_pd(b), sums);
  }
  void store(double* to) const { _mm256_storeu_pd(to, sums); }
};

/// One tile of sums over all of k.
template <typename Sum>
void sum_tile(const Sum* a, const Sum* b, int64_t k, Sum* tile) {
  constexpr int kWidth = Lanes<Sum>::kWidth;
  constexpr int kRows = Tile<Sum>::kRows;
  constexpr int kColumns = Tile<Sum>::kColumns;
  Lanes<Sum> sums[kColumns][kRows / kWidth];
  for (int64_t i = 0; i < k; ++i) {
    for (int column = 0; column < kColumns; ++column) {
      for (int part = 0; part < kRows / kWidth; ++part) {
        sums[column][part].add_product(a + i * kRows + part * kWidth, b[i * kColumns + column]);
      }
    }
  }
  for (int column = 0; column < kColumns; ++column) {
    for (int part = 0; part < kRows / kWidth; ++part) {
      sums[column][part].store(tile + column * kRows + part * kWidth);
    }
  }
}

}  // namespace

template <typename Sum>
std::vector<Sum> sums_of_products(const Factor& a, const Factor& b, int64_t m, int64_t n,
                                  int64_t k) {
  constexpr int kRows = Tile<Sum>::kRows;
  constexpr int kColumns = Tile<Sum>::kColumns;
  const int64_t panels = (n + kColumns - 1) / kColumns;
  std::vector<Sum> right(panels * kColumns * k);
  for (int64_t panel = 0; panel < panels; ++panel) {
    pack_lines<Sum, kColumns>(b, panel * kColumns, n, b.column_step, b.row_step, k,
                              right.data() + panel * kColumns * k);
  }
  std::vector<Sum> product(m * n);
  std::vector<Sum> left(kRows * k);
  Sum tile[kColumns * kRows];
  for (int64_t row = 0; row < m; row += kRows) {
    pack_lines<Sum, kRows>(a, row, m, a.row_step, a.column_step, k, left.data());
    const int64_t rows = std::min<int64_t>(kRows, m - row);
    for (int64_t panel = 0; panel < panels; ++panel) {
      sum_tile(left.data(), right.data() + panel * kColumns * k, k, tile);
      const int64_t columns = std::min<int64_t>(kColumns, n - panel * kColumns);
      for (int64_t column = 0; column < columns; ++column) {
        const Sum* from = tile + column * kRows;
        std::copy(from, from + rows, product.data() + (panel * kColumns + column) * m + row);
      }
    }
  }
  return product;
}

template std::vector<float> sums_of_products(const Factor&, const Factor&, int64_t, int64_t,
                                             int64_t);
template std::vector<double> sums_of_products(const Factor&, const Factor&, int64_t, int64_t,
                                              int64_t);
template std::vector<Complex<float>> sums_of_products(const Factor&, const Factor&, int64_t,
                                                      int64_t, int64_t);
template std::vector<Complex<double>> sums_of_products(const Factor&, const Factor&, int64_t,
                                                       int64_t, int64_t);

}  // namespace fake_cuda
