#include "epilogue.h"

#include <cmath>

#include "../common/work.h"
#include "numbers.h"

namespace fake_cuda {
namespace {

constexpr double kRootOfTwoOverPi = 0.79788456080286535588;
constexpr double kCubic = 0.044715;

}  // namespace

double gelu(double value) {
  const double inner = kRootOfTwoOverPi * (value + kCubic * value * value * value);
  return 0.5 * value * (1 + std::tanh(inner));
}

double gelu_gradient(double value) {
  const double tangens = std::tanh(kRootOfTwoOverPi * (value + kCubic * value * value * value));
  const double slope = kRootOfTwoOverPi * (1 + 3 * kCubic * value * value);
  return 0.5 * (1 + tangens) + 0.5 * value * (1 - tangens * tangens) * slope;
}

double load_real(const void* memory, cudaDataType type, int64_t index) {
  double value = 0;
  with_elements(memory, type, [&](const auto* elements) {
    using Element = std::remove_cvref_t<decltype(*elements)>;
    if constexpr (std::is_same_v<Element, double>) {
      value = elements[index];
    } else if constexpr (!is_complex<Element>) {
      value = static_cast<float>(elements[index]);
    }
  });
  return value;
}

void store_real(void* memory, cudaDataType type, int64_t index, double value) {
  with_elements(memory, type, [&](const auto* elements) {
    using Element = std::remove_cvref_t<decltype(*elements)>;
    if constexpr (!is_complex<Element>) {
      using Sum = std::conditional_t<std::is_same_v<Element, double>, double, float>;
      static_cast<Element*>(memory)[index] = static_cast<Element>(static_cast<Sum>(value));
    }
  });
}

EpilogueRun::EpilogueRun(const Epilogue& epilogue, int64_t rows, int64_t columns, int64_t batch)
    : epilogue_(epilogue) {
  if (epilogue.bias.memory != nullptr) {
    const size_t bytes = bytes_of(epilogue.bias.type);
    bias_ = static_cast<char*>(epilogue.bias.memory) + batch * epilogue.bias.stride * bytes;
    if (epilogue.adds_bias) {
      read_bytes(bias_, rows * bytes);
      for (int64_t row = 0; row < rows; ++row) {
        bias_values_.push_back(load_real(bias_, epilogue.bias.type, row));
      }
    } else if (epilogue.bias_gradient == Epilogue::BiasGradient::of_d) {
      write_bytes(bias_, rows * bytes);
      gradient_.resize(rows);
    }
  }
  if (epilogue.keeps_input || epilogue.is_gradient) {
    // One bit for each element, or the element.
    const int64_t bits =
        epilogue.activation == Epilogue::Activation::relu ? 1 : 8 * bytes_of(epilogue.input.type);
    input_ = static_cast<char*>(epilogue.input.memory) + batch * epilogue.input.stride * bits / 8;
    for (int64_t column = 0; column < columns; ++column) {
      const char* at = input_ + column * epilogue.input.leading * bits / 8;
      if (epilogue.keeps_input) {
        write_bytes(at, (rows * bits + 7) / 8);
      } else {
        read_bytes(at, (rows * bits + 7) / 8);
      }
    }
  }
}

double EpilogueRun::finish(double value, int64_t row, int64_t column) {
  using Activation = Epilogue::Activation;
  if (!bias_values_.empty()) {
    value += bias_values_[row];
  }
  if (epilogue_.is_gradient) {
    const double input = read_input(row, column);
    value *= epilogue_.activation == Activation::gelu ? gelu_gradient(input) : input;
  } else {
    if (epilogue_.keeps_input) {
      write_input(value, row, column);
    }
    if (epilogue_.activation == Activation::relu) {
      value = value < 0 ? 0 : value;  // a NaN stays
    } else if (epilogue_.activation == Activation::gelu) {
      value = gelu(value);
    }
  }
  if (!gradient_.empty()) {
    gradient_[row] += value;
  }
  return value;
}

void EpilogueRun::end() {
  for (size_t row = 0; row < gradient_.size(); ++row) {
    store_real(bias_, epilogue_.bias.type, row, gradient_[row]);
  }
}

double EpilogueRun::read_input(int64_t row, int64_t column) const {
  const int64_t place = column * epilogue_.input.leading + row;
  if (epilogue_.activation == Epilogue::Activation::relu) {
    return input_[place / 8] >> (place % 8) & 1;
  }
  return load_real(input_, epilogue_.input.type, place);
}

void EpilogueRun::write_input(double value, int64_t row, int64_t column) {
  const int64_t place = column * epilogue_.input.leading + row;
  if (epilogue_.activation != Epilogue::Activation::relu) {
    store_real(input_, epilogue_.input.type, place, value);
    return;
  }
  const auto bit = static_cast<char>(1 << (place % 8));
  input_[place / 8] =
      static_cast<char>(value > 0 ? input_[place / 8] | bit : input_[place / 8] & ~bit);
}

}  // namespace fake_cuda
