#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <string>
#include <vector>

namespace lockstep::detail {

/// How far this rank is, for the process of `lockstep run` that started it. The launcher then knows
/// which rank has not made its runtime, or has not left, what a rank that ended was doing, and
/// which ranks the others waited for. It decides by these signs, never by what ranks print.
enum class LifeSign : char {
  starting = 's',  // makes its session, which waits for all ranks
  up = 'u',        // has its session
  failing = 'f',   // leaves without the other ranks, because of an exception or a lost peer
  leaving = 'l',   // has nothing left to do, and waits for all ranks
  left = 'e',      // the session has ended with those of the other ranks
  waited = 'w',    // has waited for other ranks in vain; a WaitSign follows
  ends = 'x',      // the program is about to end because of an error; an EndSign follows
  snapshot = 'p',  // the snapshot whose path follows is whole
};

/// Whom a rank has waited for in vain, and where.
struct WaitSign {
  std::vector<int> ranks;  // of the job, ascending; empty: it does not know which
  std::string collective;  // "all_reduce #12 of Half[4096], sum"
};

/// Why a program is about to end.
struct EndSign {
  int code = 0;            // the exit code, which is not 0
  bool is_shared = false;  // other ranks failed; this one throws their error with them
  std::string text;        // of the error: equal on ranks that throw the same one
};

/// As they follow the sign. A long text or list of ranks is cut; parsing takes any text.
std::string to_text(const WaitSign& sign);
std::string to_text(const EndSign& sign);
WaitSign parse_wait_sign(const std::string& text);
EndSign parse_end_sign(const std::string& text);

/// Gives the sign, with what follows it; nothing happens in a process that another launcher
/// started. The environment variable LOCKSTEP_LIFE_SIGNS names the socket of the launcher as
/// FD:INODE. Threads: any.
void give(LifeSign sign, const std::string& text = "");

/// Whether `lockstep run` started this process and takes its signs. False where the variable was
/// only inherited: in a job that a rank has submitted, say. Threads: any.
bool has_listener();

}  // namespace lockstep::detail
