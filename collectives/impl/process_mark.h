#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep::detail {

/// Names one process for ever: its number may be given to another one, or stand for another one in
/// a container. Files that must not outlive their process carry it. Threads: any.
struct ProcessMark {
  std::string boot;         // of the machine: 32 hex digits, others after each restart
  uint64_t name_space = 0;  // of the process number, as /proc/PID/ns/pid names it
  int process = 0;
  uint64_t start = 0;  // of the process, in clock ticks since the machine's start
};

enum class Life {
  alive,
  dead,    // also one that has ended and whose parent has not noticed
  unseen,  // of another machine, or in a container that cannot be looked into from here
};

/// The mark of a process of this PID namespace; empty if /proc does not show it. `processes`: the
/// folder to use as /proc.
std::optional<ProcessMark> mark_of(int process, const std::string& processes = "/proc");

Life life_of(const ProcessMark& mark, const std::string& processes = "/proc");

/// Whether a signal or a debugger has stopped a process of this PID namespace.
bool is_stopped(int process, const std::string& processes = "/proc");

/// "BOOT-NAMESPACE-PROCESS-START", for use in a file's name.
std::string to_text(const ProcessMark& mark);

/// Empty for any other text.
std::optional<ProcessMark> parse_process_mark(std::string_view text);

/// The text of this process's mark; where /proc does not show it "unknown-PROCESS", which is none.
std::string own_mark();

}  // namespace lockstep::detail
