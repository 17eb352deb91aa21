#pragma once

#include <lockstep/collectives/core/nearest_names.h>
#include <lockstep/collectives/exceptions.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
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
  /// The value of an option that must not be negative.
  uint64_t natural() const;
  /// "true" or "1", "false" or "0".
  bool boolean() const;
  /// The parts between commas.
  std::vector<std::string> list() const;
  /// The value that `names` gives to the text.
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

/// A value such as "WarmupCosine(500,20000)": a name, and numbers in brackets.
struct OptionCall {
  std::string name;
  std::vector<double> numbers;
};
OptionCall read_call(const OptionValue& value);

/// The options of a text, in its order: "accumulate=4 snapshots.folder=\"my runs\"". Throws Error
/// for a part that is not key=value, and for a key that occurs twice.
std::vector<OptionValue> read_options(const std::string& text);

/// Which function sets which option of a Target.
template <typename Target>
using OptionTable = std::map<std::string, std::function<void(Target&, const OptionValue&)>>;

/// Calls the setter of each option. `what`: whose options they are, for the Error about a key that
/// is not in the table; it names the nearest keys.
template <typename Target>
void set_options(const std::vector<OptionValue>& options, const OptionTable<Target>& table,
                 Target& target, const std::string& what) {
  for (const OptionValue& option : options) {
    const auto setter = table.find(option.key());
    if (setter == table.end()) {
      std::vector<std::string> known;
      for (const auto& [key, function] : table) {
        known.push_back(key);
      }
      throw Error("\"" + option.key() + "\" is no option of " + what + "; the nearest are " +
                  detail::nearest_names(option.key(), known));
    }
    setter->second(target, option);
  }
}

}  // namespace lockstep::c
