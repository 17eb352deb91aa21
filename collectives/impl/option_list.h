#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

/// Each struct of options has one list of its options. Functions over the lists compare the options
/// of ranks, describe them, check ranges, read option texts and write docs/options.md.
namespace lockstep::detail {

/// Properties of an option in a list.
struct OptionRule {
  constexpr OptionRule(const char* range = "", bool described = true,  // NOLINT
                       const char* differs = "")
      : range(range), described(described), differs(differs) {}

  const char* range;         // of a number: ">= 0 and < 1". "": any number
  bool described;            // false: the results do not depend on the option
  std::string_view differs;  // why ranks may have different values. Empty: they may not
};
inline constexpr OptionRule kNotDescribed = {"", false};

template <typename Options>
struct OptionList;

/// Defines the list of a struct. The body follows: visit("name", options.name()) for each option,
/// with an OptionRule as optional third argument.
#define LOCKSTEP_OPTION_LIST(Type)                          \
  template <>                                               \
  struct OptionList<Type> {                                 \
    static constexpr const char* kName = #Type;             \
    template <typename Options, typename Visit>             \
    static void each(Options& options, const Visit& visit); \
  };                                                        \
  template <typename Options, typename Visit>               \
  void OptionList<Type>::each(Options& options, const Visit& visit)

template <typename Value, typename = void>
struct HasOptions : std::false_type {};
template <typename Value>
struct HasOptions<Value, std::void_t<decltype(OptionList<Value>::kName)>> : std::true_type {};
template <typename Value>
struct MayHaveOptions : std::false_type {};
template <typename Value>
struct MayHaveOptions<std::optional<Value>> : HasOptions<Value> {};

/// The names of an enumeration's values, which begin at 0.
template <typename Enum>
inline const std::vector<const char*> option_names;
#define LOCKSTEP_OPTION_NAMES(Enum, ...) \
  template <>                            \
  inline const std::vector<const char*> option_names<Enum> = {__VA_ARGS__}

/// "error, zeros, detect".
std::string joined(const std::vector<const char*>& names);
/// The shortest text that reads back as this number.
std::string shortest(double value);
/// "none" for a limit that no fp32 number exceeds.
std::string plain_text(double value);
std::string plain_text(const std::string& value);
std::string plain_text(const std::vector<std::string>& values);

/// The text of an option. Equal texts mean equal values. Specialise it for other types.
template <typename Value>
std::string text_of(const Value& value) {
  if constexpr (std::is_same_v<Value, bool>) {
    return value ? "true" : "false";
  } else if constexpr (std::is_enum_v<Value>) {
    return option_names<Value>[static_cast<size_t>(value)];
  } else if constexpr (std::is_integral_v<Value>) {
    return std::to_string(value);
  } else {
    return plain_text(value);
  }
}
template <typename Value>
std::string text_of(const std::optional<Value>& value) {
  if constexpr (HasOptions<Value>::value) {
    return value ? "set" : "unset";
  } else {
    return value ? text_of(*value) : "unset";
  }
}

/// Calls visit(name, option, rule, owner) for the options of `options` and of all structs in it,
/// with names as "snapshots.keep.last"; `owner` is the struct's name. For an optional struct it
/// first visits the std::optional.
template <typename Options, typename Visit>
void for_each_option(Options& options, const Visit& visit, const std::string& prefix = "",
                     bool described = true) {
  using List = OptionList<std::remove_const_t<Options>>;
  List::each(options, [&](const char* name, auto& option, OptionRule rule = {}) {
    using Value = std::remove_const_t<std::remove_reference_t<decltype(option)>>;
    rule.described = rule.described && described;
    const std::string inside = prefix + name + ".";
    if constexpr (HasOptions<Value>::value) {
      for_each_option(option, visit, inside, rule.described);
    } else {
      visit(prefix + name, option, rule, List::kName);
    }
    if constexpr (MayHaveOptions<Value>::value) {
      if (option) {
        for_each_option(*option, visit, inside, rule.described);
      }
    }
  });
}

/// An option with its value as text, for messages and tables.
struct OptionRow {
  std::string name;
  std::string value;
  std::string values;  // the range of a number, the names of an enumeration
  OptionRule rule;
  std::string owner;
  std::optional<double> number;
};

template <typename Options>
std::vector<OptionRow> rows_of(const Options& options) {
  std::vector<OptionRow> rows;
  for_each_option(options, [&](const std::string& name, const auto& option, const OptionRule& rule,
                               const char* owner) {
    using Value = std::decay_t<decltype(option)>;
    rows.push_back({name, text_of(option), rule.range, rule, owner, std::nullopt});
    if constexpr (std::is_enum_v<Value>) {
      rows.back().values = joined(option_names<Value>);
    } else if constexpr (std::is_arithmetic_v<Value>) {
      rows.back().number = static_cast<double>(option);
    } else if constexpr (std::is_same_v<Value, std::optional<int64_t>>) {
      rows.back().number = option;
    }
  });
  return rows;
}

/// Throws Error for the first number out of range: "TrainerOptions.ema must be >= 0 and < 1, is 1".
void require_ranges(const std::vector<OptionRow>& rows);

/// The options that the results depend on, on one line: "accumulate 1, ema 0.5".
std::string described(const std::vector<OptionRow>& rows);

/// Names and values as text: equal lists mean equal options.
using OptionFields = std::vector<std::pair<std::string, std::string>>;

/// The options that must be equal on all ranks. Functions, such as that of a ScheduleFunction, have
/// no text.
template <typename Options>
OptionFields fields_of(const Options& options) {
  OptionFields fields;
  for (const OptionRow& row : rows_of(options)) {
    if (row.rule.differs.empty()) {
      fields.emplace_back(row.name, row.value);
    }
  }
  return fields;
}

}  // namespace lockstep::detail
