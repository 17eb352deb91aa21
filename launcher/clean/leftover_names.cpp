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
  /// Reads so many parts with hyphens between them.
  std::string_view parts(int count) {
    size_t size = 0;
    for (int part = 0; part < count && size < rest_.size(); ++part) {
      size = std::min(rest_.find('-', part == 0 ? 0 : size + 1), rest_.size());
    }
    const std::string_view found = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return found;
  }
  /// Reads the mark of a process.
  std::optional<detail::ProcessMark> mark() { return detail::parse_process_mark(parts(4)); }
  bool ended() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

}  // namespace

std::optional<detail::ProcessMark> mark_in_file(const std::string& name) {
  NameReader memory(name);
  if (memory.word("lockstep-")) {
    const auto mark = memory.mark();
    const bool matches = memory.word("-") && memory.run_of(hex_digits).size() == 16;
    return matches && memory.ended() ? mark : std::nullopt;
  }
  NameReader arrival(name);
  if (arrival.word("lockstep_")) {
    const auto mark = arrival.mark();
    const bool matches = (arrival.word("-start-") || arrival.word("-end-")) &&
                         !arrival.run_of(word_characters).empty() && arrival.word("-") &&
                         arrival.number() && arrival.word("-") && arrival.number();
    return matches && arrival.ended() ? mark : std::nullopt;
  }
  return std::nullopt;
}

std::string JobNote::name() const {
  return "lockstep_" + to_text(mpirun) + (job.empty() ? "-mpirun" : "-job-" + job) + "." + host;
}

std::optional<JobNote> note_in(const std::string& name) {
  NameReader reader(name);
  const auto mark = reader.word("lockstep_") ? reader.mark() : std::nullopt;
  if (!mark) {
    return std::nullopt;
  }
  JobNote note = {*mark, "", ""};
  if (reader.word("-job-")) {
    note.job = reader.run_of(hex_digits);
    if (!is_job(note.job)) {
      return std::nullopt;
    }
  } else if (!reader.word("-mpirun")) {
    return std::nullopt;
  }
  if (reader.word(".")) {
    note.host = reader.run_of(std::string(word_characters) + "-.");
  }
  return reader.ended() && !note.host.empty() ? std::make_optional(note) : std::nullopt;
}

std::string host_and_user() {
  return host_name() + "." + std::to_string(geteuid());
}

std::string job_in_segment(const std::string& name) {
  NameReader reader(name);
  if (!(reader.word("vader_segment.") || reader.word("sm_segment.")) ||
      !reader.word(host_and_user() + ".")) {
    return "";
  }
  const std::string job(reader.run_of(hex_digits));
  return is_job(job) && reader.word(".") && reader.number() && reader.ended() ? job : "";
}

bool is_job(const std::string& text) {
  return !text.empty() && text.size() <= 8 && (text.front() != '0' || text.size() == 1) &&
         text.find_first_not_of(hex_digits) == std::string::npos;
}

std::vector<SessionName> sessions_of(int process) {
  const std::string number = std::to_string(process);
  return {{"ompi." + host_and_user(), "pid." + number},  // Open MPI 4
          {"", "prterun." + host_name() + "." + number + "." + std::to_string(geteuid())},
          {"", "ompi." + number}};  // from 5.0.8 on
}

std::optional<int> mpirun_of_session(const std::string& name) {
  NameReader own(name);
  if (own.word("ompi.")) {
    const auto number = own.number();
    return own.ended() ? number : std::nullopt;
  }
  NameReader reader(name);
  const auto number = reader.word("prterun." + host_name() + ".") ? reader.number() : std::nullopt;
  return reader.word("." + std::to_string(geteuid())) && reader.ended() ? number : std::nullopt;
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
  for (const char* beginning :
       {"initial-pmix_shared-segment-", "smdataseg-", "smlockseg-", "smseg-", "vader_segment.",
        "osc_rdma.", "osc_sm.", "pmix.", "pmix-gds-shmem2."}) {
    NameReader reader(name);
    if (reader.word(beginning) && !reader.run_of(std::string(word_characters) + "-@").empty() &&
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
