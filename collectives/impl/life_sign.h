#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <string>
#include <vector>

namespace lockstep::detail {

/// Messages about a rank's state to the process of `lockstep run` that started it. From these
/// signs, never from what ranks print, the launcher knows which ranks have not made or left their
/// runtime, how far a rank was and why it ends, which ranks it waited for, whether it is stuck, and
/// the newest complete snapshot.
enum class LifeSign : char {
  starting = 's',  // makes its session; waits for all ranks
  up = 'u',        // has its session
  failing = 'f',   // leaves without the other ranks: an exception or a lost peer
  leaving = 'l',   // has finished its work; waits for all ranks
  left = 'e',      // the session has ended on all ranks
  waited = 'w',    // a wait for other ranks has failed; a WaitSign follows
  ends = 'x',      // the program is about to end because of an error; an EndSign follows
  stuck = 'k',     // an error came, and a call to the device does not return: end this process; an
                   // EndSign follows
  snapshot = 'p',  // a snapshot is complete; its path follows
};

/// Which ranks did not arrive, and at which collective.
struct WaitSign {
  std::vector<int> ranks;  // of the job, ascending; empty: unknown
  std::string collective;  // "all_reduce #12 of Half[4096], sum"
};

/// Why a program is about to end.
struct EndSign {
  int code = 0;                 // the exit code, which is not 0
  bool is_shared = false;       // the error of other ranks, which this rank throws with them
  std::string text;             // of the error: equal on ranks that throw the same one
  std::vector<int> ranks = {};  // Error::ranks()
};

/// The texts that follow the signs. A long text or list is cut. Parsing accepts any text.
std::string to_text(const WaitSign& sign);
std::string to_text(const EndSign& sign);
WaitSign parse_wait_sign(const std::string& text);
EndSign parse_end_sign(const std::string& text);

/// Sends the sign and `text` to the launcher. Does nothing if another launcher started the process.
/// The environment variable LOCKSTEP_LIFE_SIGNS names the launcher's socket as FD:INODE. Threads:
/// any.
void give(LifeSign sign, const std::string& text = "");

/// Whether `lockstep run` started this process and reads its signs. False if the variable was only
/// inherited, such as in a job that a rank submitted. Threads: any.
bool has_listener();

}  // namespace lockstep::detail
