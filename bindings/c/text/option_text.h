#pragma once

#include <c10/core/ScalarType.h>
#include <lockstep/collectives/impl/option_list.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::c {

/// One option of an option text: a key and its value. The functions convert the value, or throw
/// Error that names the key, the value and what is expected.
class OptionValue {
 public:
  OptionValue(std::string key, std::string text) : key_(std::move(key)), text_(std::move(text)) {}

  const std::string& key() const { return key_; }
  const std::string& text() const { return text_; }
  double real() const;
  int64_t integer() const;
  /// A value that must not be negative.
  uint64_t natural() const;
  /// "true" or "1", "false" or "0".
  bool boolean() const;
  /// The parts between commas, without blanks around them.
  std::vector<std::string> list() const;
  /// The value of the text in `names`.
  template <typename T>
  const T& one_of(const std::map<std::string, T>& names) const {
    const auto found = names.find(text_);
    if (found == names.end()) {
      std::vector<std::string> known;
      for (const auto& [name, value] : names) {
        known.push_back(name);
      }
      refuse_name(known);
    }
    return found->second;
  }
  [[noreturn]] void refuse(const std::string& expected) const;

 private:
  [[noreturn]] void refuse_name(const std::vector<std::string>& known) const;

  std::string key_;
  std::string text_;
};

/// fp32, fp16 or bf16.
c10::ScalarType floating_dtype(const OptionValue& value);

/// A value such as "WarmupCosine(500,20000)": a name, and numbers in brackets.
struct OptionCall {
  std::string name;
  std::vector<double> numbers;
};
OptionCall read_call(const OptionValue& value);

/// Parses a text such as "accumulate=4 snapshots.folder=\"my runs\"", in its order. A value goes on
/// behind a comma and blanks unless key=value follows. Throws Error for a part that is not
/// key=value and for a repeated key.
std::vector<OptionValue> read_options(const std::string& text);

/// Sets an option to the value of a text. Overload it for other types.
template <typename Option>
void read(Option& option, const OptionValue& value) {
  if constexpr (std::is_same_v<Option, bool>) {
    option = value.boolean();
  } else if constexpr (std::is_same_v<Option, double>) {
    option = value.real();
  } else if constexpr (std::is_enum_v<Option>) {
    std::map<std::string, Option> names;
    for (const char* name : detail::option_names<Option>) {
      names.emplace(name, static_cast<Option>(names.size()));
    }
    option = value.one_of(names);
  } else if constexpr (std::is_unsigned_v<Option>) {
    option = value.natural();
  } else if constexpr (std::is_integral_v<Option>) {
    option = value.integer();
  } else if constexpr (std::is_same_v<Option, std::vector<std::string>>) {
    option = value.list();
  } else if constexpr (std::is_constructible_v<Option, const std::string&>) {
    option = Option(value.text());
  } else {
    value.refuse("a value that only C++ can give");
  }
}
template <typename Option>
void read(std::optional<Option>& option, const OptionValue& value) {
  if constexpr (std::is_default_constructible_v<Option>) {
    read(option.emplace(), value);
  }
}

/// Throws Error about an unknown key of `what`, with the most similar keys.
[[noreturn]] void refuse_key(const std::string& key, const std::string& what,
                             const std::vector<std::string>& known);

/// Sets options that are in the list of Options. `what`: the class, for errors. `key_of`: the key
/// for an option's name; empty: no key. `others`: further keys, for the Error about an unknown one.
template <typename Options>
void set_options(const std::vector<OptionValue>& values, Options& options, const std::string& what,
                 std::string (*key_of)(const std::string& name) = nullptr,
                 const std::vector<std::string>& others = {}) {
  for (const OptionValue& value : values) {
    std::vector<std::string> known = others;
    bool found = false;
    detail::for_each_option(options, [&](const std::string& name, auto& option, auto&&...) {
      known.push_back(key_of != nullptr ? key_of(name) : name);
      if (known.back() == value.key()) {
        read(option, value);
        found = true;
      }
    });
    if (!found) {
      refuse_key(value.key(), what, known);
    }
  }
}

}  // namespace lockstep::c
