#include <lockstep/bindings/c/text/option_text.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/nearest_names.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <locale>
#include <set>
#include <sstream>

namespace lockstep::c {
namespace {

bool is_blank(char letter) {
  return std::isspace(static_cast<unsigned char>(letter)) != 0;
}

/// std::stod depends on the program's locale, and GCC 10 has no std::from_chars for double. Takes
/// Fortran's 1d-3, too.
bool read_real(std::string text, double& value) {
  if (text.empty() || is_blank(text.front())) {
    return false;
  }
  if (text == "inf" || text == "infinity") {
    value = INFINITY;
    return true;
  }
  std::replace_if(
      text.begin(), text.end(), [](char letter) { return letter == 'd' || letter == 'D'; }, 'e');
  std::istringstream stream(text);
  stream.imbue(std::locale::classic());
  stream >> value;
  return !stream.fail() && stream.peek() == std::istringstream::traits_type::eof();
}

template <typename Integer>
bool read_integer(const std::string& text, Integer& value) {
  const char* const end = text.data() + text.size();
  const auto result = std::from_chars(text.data(), end, value);
  return !text.empty() && result.ec == std::errc() && result.ptr == end;
}

/// Whether a value that ends in a comma goes on behind the blanks at `at`: the next word is no
/// key=value.
bool goes_on(const std::string& text, size_t at) {
  while (at < text.size() && is_blank(text[at])) {
    ++at;
  }
  const size_t begin = at;
  while (at < text.size() && !is_blank(text[at]) && text[at] != '=') {
    ++at;
  }
  return at > begin && (at == text.size() || text[at] != '=');
}

/// Reads the value at `at` and advances `at` past it.
std::string read_value(const std::string& text, size_t& at) {
  std::string value;
  bool quoted = false;
  for (; at < text.size(); ++at) {
    if (text[at] == '"') {
      quoted = !quoted;
    } else if (!quoted && is_blank(text[at])) {
      if (value.empty() || value.back() != ',' || !goes_on(text, at)) {
        break;
      }
    } else {
      value += text[at];
    }
  }
  LOCKSTEP_CHECK(!quoted, "an option text has a value whose closing quote is missing: ", value);
  return value;
}

}  // namespace

void OptionValue::refuse(const std::string& expected) const {
  throw Error(key_ + " is \"" + text_ + "\"; expected " + expected);
}

void OptionValue::refuse_name(const std::vector<std::string>& known) const {
  refuse((known.size() > 3 ? "a name such as " : "") + detail::nearest_names(text_, known));
}

double OptionValue::real() const {
  double value = 0.0;
  if (!read_real(text_, value)) {
    refuse("a number");
  }
  return value;
}

int64_t OptionValue::integer() const {
  int64_t value = 0;
  if (!read_integer(text_, value)) {
    refuse("a whole number");
  }
  return value;
}

uint64_t OptionValue::natural() const {
  uint64_t value = 0;
  if (!read_integer(text_, value)) {
    refuse("a whole number that is not negative");
  }
  return value;
}

bool OptionValue::boolean() const {
  const bool is_true = text_ == "true" || text_ == "1";
  if (!is_true && text_ != "false" && text_ != "0") {
    refuse("true or false");
  }
  return is_true;
}

std::vector<std::string> OptionValue::list() const {
  std::vector<std::string> parts;
  std::istringstream stream(text_);
  for (std::string part; std::getline(stream, part, ',');) {
    part.erase(std::find_if_not(part.rbegin(), part.rend(), is_blank).base(), part.end());
    parts.emplace_back(std::find_if_not(part.begin(), part.end(), is_blank), part.end());
  }
  return parts;
}

c10::ScalarType floating_dtype(const OptionValue& value) {
  return value.one_of<c10::ScalarType>({{"fp32", c10::ScalarType::Float},
                                        {"fp16", c10::ScalarType::Half},
                                        {"bf16", c10::ScalarType::BFloat16}});
}

OptionCall read_call(const OptionValue& value) {
  const std::string& text = value.text();
  const size_t bracket = text.find('(');
  OptionCall call{text.substr(0, bracket), {}};
  if (bracket == std::string::npos) {
    return call;
  }
  if (text.back() != ')') {
    value.refuse("a name and numbers in brackets: WarmupCosine(500,20000)");
  }
  const std::string inside = text.substr(bracket + 1, text.size() - bracket - 2);
  for (const std::string& part : OptionValue(value.key(), inside).list()) {
    call.numbers.push_back(OptionValue(value.key(), part).real());
  }
  return call;
}

std::vector<OptionValue> read_options(const std::string& text) {
  std::vector<OptionValue> options;
  std::set<std::string> keys;
  for (size_t at = 0; at < text.size();) {
    if (is_blank(text[at])) {
      ++at;
      continue;
    }
    const size_t begin = at;
    while (at < text.size() && text[at] != '=' && !is_blank(text[at])) {
      ++at;
    }
    const std::string key = text.substr(begin, at - begin);
    LOCKSTEP_CHECK(at < text.size() && text[at] == '=' && !key.empty(), "\"", key,
                   "\" is no option; expected key=value, without blanks around the =");
    ++at;
    options.emplace_back(key, read_value(text, at));
    LOCKSTEP_CHECK(keys.insert(key).second, "the option ", key, " is given twice");
  }
  return options;
}

void refuse_key(const std::string& key, const std::string& what,
                const std::vector<std::string>& known) {
  throw Error("\"" + key + "\" is no option of " + what + "; the nearest are " +
              detail::nearest_names(key, known));
}

}  // namespace lockstep::c
