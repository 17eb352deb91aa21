#include "reduction.h"

#include <cmath>
#include <type_traits>

#include "../blas/numbers.h"

namespace fake_cuda {
namespace {

/// 16-bit numbers are added in fp32 and rounded.
template <typename Element>
using Wide = std::conditional_t<std::is_same_v<Element, Half> || std::is_same_v<Element, Bfloat16>,
                                float, Element>;

template <typename Use>
void with_type(ncclDataType_t type, const Use& use) {
  switch (type) {
    case ncclInt8:
      return use(int8_t{});
    case ncclUint8:
      return use(uint8_t{});
    case ncclInt32:
      return use(int32_t{});
    case ncclUint32:
      return use(uint32_t{});
    case ncclInt64:
      return use(int64_t{});
    case ncclUint64:
      return use(uint64_t{});
    case ncclFloat16:
      return use(Half{});
    case ncclBfloat16:
      return use(Bfloat16{});
    case ncclFloat32:
      return use(float{});
    default:
      return use(double{});
  }
}

/// Sums of integers wrap around.
template <typename Number, typename Operation>
Number wrapping(Number a, Number b, const Operation& operation) {
  if constexpr (std::is_integral_v<Number>) {
    return static_cast<Number>(operation(static_cast<uint64_t>(a), static_cast<uint64_t>(b)));
  } else {
    return operation(a, b);
  }
}

template <typename Number>
Number larger(Number a, Number b) {
  if constexpr (std::is_integral_v<Number>) {
    return a < b ? b : a;
  } else {
    return std::fmax(a, b);
  }
}
template <typename Number>
Number smaller(Number a, Number b) {
  if constexpr (std::is_integral_v<Number>) {
    return b < a ? b : a;
  } else {
    return std::fmin(a, b);
  }
}

template <typename Element, typename Operation>
void for_all(Element* into, const Element* from, size_t count, const Operation& operation) {
  for (size_t i = 0; i < count; ++i) {
    into[i] = static_cast<Element>(
        operation(static_cast<Wide<Element>>(into[i]), static_cast<Wide<Element>>(from[i])));
  }
}

}  // namespace

size_t bytes_of(ncclDataType_t type) {
  switch (type) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

std::string name_of(ncclDataType_t type) {
  constexpr const char* kNames[] = {"int8",    "uint8",    "int32",      "uint32",
                                    "int64",   "uint64",   "float16",    "float32",
                                    "float64", "bfloat16", "float8e4m3", "float8e5m2"};
  return type >= 0 && type < ncclNumTypes ? kNames[type] : "type " + std::to_string(type);
}

bool can_be_reduced(ncclDataType_t type) {
  return bytes_of(type) != 0 && type != ncclFloat8e4m3 && type != ncclFloat8e5m2;
}

void multiply_all(void* elements, size_t count, ncclDataType_t type, double factor) {
  with_type(type, [&](auto example) {
    using Element = decltype(example);
    if constexpr (!std::is_integral_v<Element>) {
      auto* all = static_cast<Element*>(elements);
      // The factor has the type of the elements.
      const auto by =
          static_cast<Wide<Element>>(static_cast<Element>(static_cast<Wide<Element>>(factor)));
      for (size_t i = 0; i < count; ++i) {
        all[i] = static_cast<Element>(static_cast<Wide<Element>>(all[i]) * by);
      }
    }
  });
}

void divide_all(void* elements, size_t count, ncclDataType_t type, int divisor) {
  with_type(type, [&](auto example) {
    using Element = decltype(example);
    if constexpr (std::is_integral_v<Element>) {
      auto* all = static_cast<Element*>(elements);
      for (size_t i = 0; i < count; ++i) {
        all[i] = static_cast<Element>(all[i] / static_cast<Element>(divisor));
      }
    }
  });
}

void combine(void* into, const void* from, size_t count, ncclDataType_t type, ncclRedOp_t op) {
  with_type(type, [&](auto example) {
    using Element = decltype(example);
    using Number = Wide<Element>;
    auto* sums = static_cast<Element*>(into);
    const auto* next = static_cast<const Element*>(from);
    const auto add = [](auto a, auto b) { return a + b; };
    const auto multiply = [](auto a, auto b) { return a * b; };
    switch (op) {
      case ncclProd:
        return for_all(sums, next, count,
                       [&](Number a, Number b) { return wrapping(a, b, multiply); });
      case ncclMax:
        return for_all(sums, next, count, [](Number a, Number b) { return larger(a, b); });
      case ncclMin:
        return for_all(sums, next, count, [](Number a, Number b) { return smaller(a, b); });
      default:
        return for_all(sums, next, count, [&](Number a, Number b) { return wrapping(a, b, add); });
    }
  });
}

double load_scalar(const void* scalar, ncclDataType_t type) {
  double value = 0;
  with_type(type, [&](auto example) {
    using Element = decltype(example);
    value = static_cast<double>(static_cast<Wide<Element>>(*static_cast<const Element*>(scalar)));
  });
  return value;
}

}  // namespace fake_cuda
