#include <c10/util/StringUtil.h>
#include <lockstep/inputs/exported/graph/linear_size.h>

#include <stdexcept>
#include <utility>
#include <vector>

namespace lockstep::exported {

namespace {

/// "Mul", and its operands; empty operands if the parentheses do not close at the end.
std::pair<std::string, std::vector<std::string>> split(const std::string& expression) {
  const size_t open = expression.find('(');
  std::vector<std::string> operands;
  int depth = 0;
  size_t begin = open + 1;
  for (size_t i = open; i < expression.size(); ++i) {
    depth += expression[i] == '(' ? 1 : expression[i] == ')' ? -1 : 0;
    if ((expression[i] == ',' && depth == 1) || (depth == 0 && i + 1 == expression.size())) {
      operands.push_back(expression.substr(begin, i - begin));
      begin = i + 2;  // after ", "
    }
  }
  return {expression.substr(0, open),
          depth == 0 ? std::move(operands) : std::vector<std::string>()};
}

std::optional<LinearSize> sum(const LinearSize& a, const LinearSize& b) {
  LinearSize result{a.symbol.empty() ? b.symbol : a.symbol};
  const bool one = a.symbol.empty() || b.symbol.empty() || a.symbol == b.symbol;
  return one && !__builtin_add_overflow(a.factor, b.factor, &result.factor) &&
                 !__builtin_add_overflow(a.offset, b.offset, &result.offset)
             ? std::optional(result)
             : std::nullopt;
}

std::optional<LinearSize> product(const LinearSize& a, const LinearSize& b) {
  if (!a.symbol.empty() && !b.symbol.empty()) {
    return std::nullopt;
  }
  const LinearSize& size = a.symbol.empty() ? b : a;
  const int64_t number = a.symbol.empty() ? a.offset : b.offset;
  LinearSize result{size.symbol};
  return !__builtin_mul_overflow(size.factor, number, &result.factor) &&
                 !__builtin_mul_overflow(size.offset, number, &result.offset)
             ? std::optional(result)
             : std::nullopt;
}

/// A number is a size without a symbol, whose factor is 0.
std::optional<LinearSize> parsed(const std::string& expression, int depth) {
  const auto [kind, operands] = split(expression);
  if (operands.empty() || depth > 8) {
    return std::nullopt;
  }
  if (kind == "Symbol" && operands[0].size() > 2) {
    return LinearSize{operands[0].substr(1, operands[0].size() - 2)};
  }
  if (kind == "Integer") {
    try {
      return LinearSize{"", 0, std::stoll(operands[0])};
    } catch (const std::logic_error&) {
      return std::nullopt;
    }
  }
  if (kind != "Add" && kind != "Mul") {
    return std::nullopt;
  }
  auto result = parsed(operands[0], depth + 1);
  for (size_t i = 1; i < operands.size() && result.has_value(); ++i) {
    const auto next = parsed(operands[i], depth + 1);
    result = !next.has_value() ? std::nullopt
             : kind == "Add"   ? sum(*result, *next)
                               : product(*result, *next);
  }
  return result;
}

}  // namespace

std::optional<LinearSize> LinearSize::parse(const std::string& expression) {
  auto size = parsed(expression, 0);
  return size.has_value() && !size->symbol.empty() ? size : std::nullopt;
}

std::optional<int64_t> LinearSize::at(int64_t value) const {
  int64_t size = 0;
  return !__builtin_mul_overflow(factor, value, &size) &&
                 !__builtin_add_overflow(size, offset, &size)
             ? std::optional(size)
             : std::nullopt;
}

std::string LinearSize::text() const {
  return c10::str(
      factor == 1 ? "" : c10::str(factor, "*"), symbol,
      offset == 0 ? "" : c10::str(offset < 0 ? " - " : " + ", offset < 0 ? -offset : offset));
}

}  // namespace lockstep::exported
