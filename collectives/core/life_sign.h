#pragma once

#include <string>

namespace lockstep::detail {

/// How far this rank is, for the process of `lockstep run` that started it. The launcher then knows
/// which rank has not made its runtime, or has not left, and what a rank that ended was doing.
enum class LifeSign : char {
  starting = 's',   // makes its session, which waits for all ranks
  up = 'u',         // has its session
  failing = 'f',    // leaves without the other ranks, because of an exception or a lost peer
  leaving = 'l',    // has nothing left to do, and waits for all ranks
  left = 'e',       // the session has ended with those of the other ranks
  exit_code = 'x',  // the program is about to end with the code that follows, which is not 0
  snapshot = 'p',   // the snapshot whose path follows is whole
};

/// Gives the sign, with what follows it; nothing happens in a process that another launcher
/// started. The environment variable LOCKSTEP_LIFE_SIGNS names the socket of the launcher as
/// FD:INODE. Threads: any.
void give(LifeSign sign, const std::string& text = "");

/// Whether `lockstep run` started this process and takes its signs. False where the variable was
/// only inherited: in a job that a rank has submitted, say. Threads: any.
bool has_listener();

}  // namespace lockstep::detail
