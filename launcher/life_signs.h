#pragma once

#include <string>

namespace lockstep::launcher {

/// How far one rank is, from the life signs of its program. A program without lockstep gives none.
class LifeSigns {
 public:
  enum class Stage {
    none,      // has made no runtime
    starting,  // makes its runtime, which waits for all ranks
    up,        // has its runtime
    leaving,   // has nothing left to do, and waits for all ranks
    left,      // its runtime has ended with those of the other ranks
  };

  /// A word of collectives/core/life_sign.h; another word changes nothing.
  void add(const std::string& word);

  Stage stage() const { return stage_; }
  /// It leaves by itself without the other ranks.
  bool fails() const { return fails_; }
  /// The exit code that it is about to end with; 0: it has not said one.
  int exit_code() const { return exit_code_; }
  /// The other ranks cannot go on without it.
  bool has_session() const { return stage_ != Stage::none && stage_ != Stage::left && !fails_; }
  /// The newest snapshot that it knows to be whole; empty: none.
  const std::string& snapshot() const { return snapshot_; }

 private:
  Stage stage_ = Stage::none;
  bool fails_ = false;
  int exit_code_ = 0;
  std::string snapshot_;
};

}  // namespace lockstep::launcher
