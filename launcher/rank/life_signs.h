#pragma once

#include <lockstep/collectives/impl/life_sign.h>

#include <optional>
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

  /// A word of collectives/impl/life_sign.h; another word changes nothing.
  void add(const std::string& word);

  Stage stage() const { return stage_; }
  /// It leaves by itself without the other ranks.
  bool fails() const { return fails_; }
  /// Why it is about to end; code 0: it has not said.
  const detail::EndSign& end() const { return end_; }
  /// Whether both are about to end because of the same error.
  bool ends_like(const LifeSigns& other) const;
  /// Whom it has waited for in vain; the first time counts, if it knew the ranks.
  const std::optional<detail::WaitSign>& waited() const { return waited_; }
  /// The other ranks cannot go on without it.
  bool has_session() const { return stage_ != Stage::none && stage_ != Stage::left && !fails_; }
  /// The newest snapshot that it knows to be whole; empty: none.
  const std::string& snapshot() const { return snapshot_; }

 private:
  Stage stage_ = Stage::none;
  bool fails_ = false;
  detail::EndSign end_;
  std::optional<detail::WaitSign> waited_;
  std::string snapshot_;
};

}  // namespace lockstep::launcher
