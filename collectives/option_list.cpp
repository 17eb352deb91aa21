#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/option_list.h>

#include <cstdlib>
#include <iomanip>
#include <limits>
#include <sstream>

namespace lockstep::detail {
namespace {

/// True if every condition of ">= 0 and < 1" holds; false for NaN.
bool is_in(double value, const std::string& range) {
  std::istringstream words(range);
  std::string sign, limit, joint;
  bool holds = true;
  for (; holds && words >> sign >> limit; words >> joint) {
    const double bound = std::strtod(limit.c_str(), nullptr);
    holds = (sign == ">=" && value >= bound) || (sign == ">" && value > bound) ||
            (sign == "<=" && value <= bound) || (sign == "<" && value < bound);
  }
  return holds;
}

}  // namespace

std::string joined(const std::vector<const char*>& names) {
  return c10::Join(", ", names);
}

std::string shortest(double value) {
  std::string text;
  for (int digits = 6; digits <= 17; ++digits) {
    text = c10::str(std::setprecision(digits), value);
    if (std::strtod(text.c_str(), nullptr) == value) {
      break;
    }
  }
  return text;
}

std::string plain_text(double value) {
  return value >= std::numeric_limits<float>::max() ? "none" : shortest(value);
}

std::string plain_text(const std::string& value) {
  return "\"" + value + "\"";
}

std::string plain_text(const std::vector<std::string>& values) {
  return plain_text(c10::Join(" ", values));
}

void require_ranges(const std::vector<OptionRow>& rows) {
  for (const OptionRow& row : rows) {
    LOCKSTEP_CHECK(!row.number || is_in(*row.number, row.rule.range),
                   row.owner.substr(row.owner.rfind(':') + 1), ".",
                   row.name.substr(row.name.rfind('.') + 1), " must be ", row.rule.range, ", is ",
                   shortest(*row.number));
  }
}

std::string described(const std::vector<OptionRow>& rows) {
  std::string text;
  for (const OptionRow& row : rows) {
    if (row.rule.described) {
      text += c10::str(text.empty() ? "" : ", ", row.name, " ", row.value);
    }
  }
  return text;
}

}  // namespace lockstep::detail
