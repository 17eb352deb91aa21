#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/inputs/exported/graph/arithmetic.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <unordered_map>
#include <utility>

namespace lockstep::exported {

namespace {

using c10::IValue;
using Stack = std::vector<IValue>;

bool is_float(const IValue& value) {
  return value.isDouble();
}

double as_float(const IValue& value) {
  return value.toScalar().toDouble();
}

int64_t as_integer(const IValue& value) {
  return value.isBool() ? static_cast<int64_t>(value.toBool()) : value.toInt();
}

bool truth(const IValue& value) {
  return is_float(value) ? value.toDouble() != 0 : as_integer(value) != 0;
}

[[noreturn]] void too_large() {
  throw Error("ExportedModule: a size that the program computes does not fit 64 bits");
}

struct Add {
  static double of(double a, double b) { return a + b; }
  static bool overflows(int64_t a, int64_t b, int64_t* sum) {
    return __builtin_add_overflow(a, b, sum);
  }
};
struct Subtract {
  static double of(double a, double b) { return a - b; }
  static bool overflows(int64_t a, int64_t b, int64_t* difference) {
    return __builtin_sub_overflow(a, b, difference);
  }
};
struct Multiply {
  static double of(double a, double b) { return a * b; }
  static bool overflows(int64_t a, int64_t b, int64_t* product) {
    return __builtin_mul_overflow(a, b, product);
  }
};

void check_divisor(int64_t a, int64_t b) {
  LOCKSTEP_CHECK(b != 0, "ExportedModule: the program divides a size by 0");
  if (b == -1 && a == std::numeric_limits<int64_t>::min()) {
    too_large();
  }
}

struct FloorDivide {
  static double of(double a, double b) { return std::floor(a / b); }
  static bool overflows(int64_t a, int64_t b, int64_t* quotient) {
    check_divisor(a, b);
    *quotient = a / b - static_cast<int64_t>(a % b != 0 && (a < 0) != (b < 0));
    return false;
  }
};
struct Modulo {
  static double of(double a, double b) { return a - b * std::floor(a / b); }
  static bool overflows(int64_t a, int64_t b, int64_t* remainder) {
    check_divisor(a, b);
    const int64_t rest = a % b;
    *remainder = rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
    return false;
  }
};

void replace(Stack& stack, size_t operands, IValue result) {
  stack.resize(stack.size() - operands);
  stack.push_back(std::move(result));
}

template <typename Operation>
void binary(Stack& stack) {
  const IValue& a = stack[stack.size() - 2];
  const IValue& b = stack[stack.size() - 1];
  if (is_float(a) || is_float(b)) {
    return replace(stack, 2, Operation::of(as_float(a), as_float(b)));
  }
  int64_t result = 0;
  if (Operation::overflows(as_integer(a), as_integer(b), &result)) {
    too_large();
  }
  replace(stack, 2, result);
}

template <template <typename> class Compare>
void comparison(Stack& stack) {
  const IValue& a = stack[stack.size() - 2];
  const IValue& b = stack[stack.size() - 1];
  const bool result = is_float(a) || is_float(b) ? Compare<double>()(as_float(a), as_float(b))
                                                 : Compare<int64_t>()(as_integer(a), as_integer(b));
  replace(stack, 2, result);
}

void divide(Stack& stack) {
  const double divisor = as_float(stack[stack.size() - 1]);
  LOCKSTEP_CHECK(divisor != 0, "ExportedModule: the program divides a size by 0");
  replace(stack, 2, as_float(stack[stack.size() - 2]) / divisor);
}

void power(Stack& stack) {
  const IValue& a = stack[stack.size() - 2];
  const IValue& b = stack[stack.size() - 1];
  if (is_float(a) || is_float(b) || as_integer(b) < 0) {
    return replace(stack, 2, std::pow(as_float(a), as_float(b)));
  }
  const int64_t base = as_integer(a);
  int64_t result = base == 0 || base == 1 ? base : 1;
  int64_t exponent = as_integer(b);
  if (exponent == 0) {
    result = 1;
  } else if (base == -1) {
    result = exponent % 2 == 0 ? 1 : -1;
  } else if (base != 0 && base != 1) {
    for (; exponent > 0; --exponent) {
      if (__builtin_mul_overflow(result, base, &result)) {
        too_large();
      }
    }
  }
  replace(stack, 2, result);
}

/// As Python's & and |: a boolean for two booleans, else bitwise on integers.
void both(Stack& stack) {
  const IValue a = stack[stack.size() - 2];
  const IValue b = stack[stack.size() - 1];
  if (a.isBool() && b.isBool()) {
    replace(stack, 2, a.toBool() && b.toBool());
  } else {
    replace(stack, 2, as_integer(a) & as_integer(b));
  }
}

void either(Stack& stack) {
  const IValue a = stack[stack.size() - 2];
  const IValue b = stack[stack.size() - 1];
  if (a.isBool() && b.isBool()) {
    replace(stack, 2, a.toBool() || b.toBool());
  } else {
    replace(stack, 2, as_integer(a) | as_integer(b));
  }
}

/// The operands of << and >>: integers, the second not negative.
std::pair<int64_t, int64_t> shifted(const Stack& stack) {
  const int64_t places = as_integer(stack[stack.size() - 1]);
  LOCKSTEP_CHECK(places >= 0, "ExportedModule: the program shifts a size by ", places, " places");
  return {as_integer(stack[stack.size() - 2]), places};
}

void shift_left(Stack& stack) {
  auto [value, places] = shifted(stack);
  for (; places > 0 && value != 0; --places) {
    if (__builtin_mul_overflow(value, int64_t{2}, &value)) {
      too_large();
    }
  }
  replace(stack, 2, value);
}

void shift_right(Stack& stack) {
  const auto [value, places] = shifted(stack);
  replace(stack, 2, value >> std::min<int64_t>(places, 63));
}

void negation(Stack& stack) {
  replace(stack, 1, !truth(stack.back()));
}

void negative(Stack& stack) {
  stack.emplace_back(int64_t{-1});
  binary<Multiply>(stack);
}

void same(Stack& stack) {}

template <bool larger>
void extreme(Stack& stack) {
  const IValue a = stack[stack.size() - 2];
  const IValue b = stack[stack.size() - 1];
  const bool first = larger ? as_float(a) >= as_float(b) : as_float(a) <= as_float(b);
  replace(stack, 2, first ? a : b);
}

void to_float(Stack& stack) {
  replace(stack, 1, as_float(stack.back()));
}

template <double (*round)(double)>
void to_integer(Stack& stack) {
  if (!is_float(stack.back())) {
    return replace(stack, 1, as_integer(stack.back()));
  }
  const double value = round(stack.back().toDouble());
  if (!(std::abs(value) < 9e18)) {
    too_large();
  }
  replace(stack, 1, static_cast<int64_t>(value));
}

void magnitude(Stack& stack) {
  if (as_float(stack.back()) < 0) {
    negative(stack);
  }
}

void square_root(Stack& stack) {
  replace(stack, 1, std::sqrt(as_float(stack.back())));
}

void choice(Stack& stack) {
  const IValue chosen = stack[stack.size() - (truth(stack[stack.size() - 3]) ? 2 : 1)];
  replace(stack, 3, chosen);
}

}  // namespace

Arithmetic arithmetic_of(const std::string& target, size_t& operands) {
  static const std::unordered_map<std::string, std::pair<Arithmetic, size_t>> functions = {
      {"_operator.add", {binary<Add>, 2}},
      {"_operator.sub", {binary<Subtract>, 2}},
      {"_operator.mul", {binary<Multiply>, 2}},
      {"_operator.floordiv", {binary<FloorDivide>, 2}},
      {"_operator.mod", {binary<Modulo>, 2}},
      {"_operator.truediv", {divide, 2}},
      {"_operator.pow", {power, 2}},
      {"_operator.eq", {comparison<std::equal_to>, 2}},
      {"_operator.ne", {comparison<std::not_equal_to>, 2}},
      {"_operator.lt", {comparison<std::less>, 2}},
      {"_operator.le", {comparison<std::less_equal>, 2}},
      {"_operator.gt", {comparison<std::greater>, 2}},
      {"_operator.ge", {comparison<std::greater_equal>, 2}},
      {"_operator.and_", {both, 2}},
      {"_operator.or_", {either, 2}},
      {"_operator.lshift", {shift_left, 2}},
      {"_operator.rshift", {shift_right, 2}},
      {"_operator.neg", {negative, 1}},
      {"_operator.pos", {same, 1}},
      {"math.trunc", {to_integer<std::trunc>, 1}},
      {"math.floor", {to_integer<std::floor>, 1}},
      {"math.ceil", {to_integer<std::ceil>, 1}},
      {"math.sqrt", {square_root, 1}},
      {"abs", {magnitude, 1}},
      {"torch.sym_not", {negation, 1}},
      {"torch.sym_int", {to_integer<std::trunc>, 1}},
      {"torch.sym_float", {to_float, 1}},
      {"torch.sym_max", {extreme<true>, 2}},
      {"torch.sym_min", {extreme<false>, 2}},
      {"torch._sym_sqrt", {square_root, 1}},
      {"torch.sym_ite", {choice, 3}},
  };
  const auto found = functions.find(target);
  if (found == functions.end()) {
    return nullptr;
  }
  operands = found->second.second;
  return found->second.first;
}

}  // namespace lockstep::exported
