#include "clean/leftover_names.h"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <string_view>

#include "machine/machine.h"

namespace lockstep::launcher {
namespace {

constexpr std::string_view digits = "0123456789";
constexpr std::string_view hex_digits = "0123456789abcdef";
constexpr std::string_view word_characters =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._";

/// Reads a name from left to right.
class NameReader {
 public:
  explicit NameReader(std::string_view name) : rest_(name) {}

  bool word(std::string_view expected) {
    const bool found = rest_.substr(0, expected.size()) == expected;
    rest_.remove_prefix(found ? expected.size() : 0);
    return found;
  }
  /// Reads as many of these characters as there are, at least one.
  std::string_view run_of(std::string_view characters) {
    const size_t size = std::min(rest_.find_first_not_of(characters), rest_.size());
    const std::string_view found = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return found;
  }
  /// Reads a number without leading zeros; empty if it is not an int.
  std::optional<int> number() {
    const std::string_view text = run_of(digits);
    if (text.empty() || text.size() > 10 || (text.front() == '0' && text.size() > 1)) {
      return std::nullopt;
    }
    int64_t value = 0;
    for (const char digit : text) {
      value = value * 10 + (digit - '0');
    }
    return value <= INT_MAX ? std::make_optional(static_cast<int>(value)) : std::nullopt;
  }
  bool ended() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

}  // namespace

std::optional<int> process_in_file(const std::string& name) {
  NameReader memory(name);
  if (memory.word("lockstep-")) {
    const auto process = memory.number();
    const bool matches = memory.word("-") && memory.run_of(hex_digits).size() == 16;
    return matches && memory.ended() ? process : std::nullopt;
  }
  NameReader arrival(name);
  if (arrival.word("lockstep_")) {
    const auto process = arrival.number();
    const bool matches = (arrival.word("-start-") || arrival.word("-end-")) &&
                         !arrival.run_of(word_characters).empty() && arrival.word("-") &&
                         arrival.number() && arrival.word("-") && arrival.number();
    return matches && arrival.ended() ? process : std::nullopt;
  }
  return std::nullopt;
}

std::string host_and_user() {
  return host_name() + "." + std::to_string(geteuid());
}

bool is_segment(const std::string& name) {
  NameReader reader(name);
  if (!reader.word("vader_segment." + host_and_user() + ".")) {
    return false;
  }
  const std::string_view job = reader.run_of(hex_digits);  // 32 bits, as "%x" prints them
  return !job.empty() && job.size() <= 8 && (job.front() != '0' || job.size() == 1) &&
         reader.word(".") && reader.number() && reader.ended();
}

std::optional<int> process_in_session(const std::string& name) {
  NameReader reader(name);
  const auto process = reader.word("pid.") ? reader.number() : std::nullopt;
  return reader.ended() ? process : std::nullopt;
}

bool is_folder_of_session(const std::string& name) {
  NameReader number(name);
  NameReader store(name);
  return (number.number() && number.ended()) ||
         (store.word("pmix_dstor_") && !store.run_of(word_characters).empty() && store.ended());
}

bool is_file_of_session(const std::string& name) {
  for (const char* whole : {"contact.txt", "debugger_attach_fifo", "dstore_sm.lock", "hwloc.sm"}) {
    if (name == whole) {
      return true;
    }
  }
  for (const char* beginning : {"initial-pmix_shared-segment-", "smdataseg-", "smlockseg-",
                                "smseg-", "vader_segment.", "osc_rdma.", "osc_sm.", "pmix."}) {
    NameReader reader(name);
    if (reader.word(beginning) && !reader.run_of(std::string(word_characters) + "-").empty() &&
        reader.ended()) {
      return true;
    }
  }
  return false;
}

std::optional<int> number_in(const std::string& name) {
  NameReader reader(name);
  const auto number = reader.number();
  return reader.ended() ? number : std::nullopt;
}

}  // namespace lockstep::launcher
