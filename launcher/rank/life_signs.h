#pragma once

#include <lockstep/collectives/impl/life_sign.h>

#include <optional>
#include <string>

namespace lockstep::launcher {

/// The state of a rank by the life signs of its program. A program without lockstep sends none.
class LifeSigns {
 public:
  enum class Stage {
    none,      // has not made a runtime
    starting,  // makes its runtime; waits for all ranks
    up,        // has its runtime
    leaving,   // has finished its work; waits for all ranks
    left,      // its runtime has ended on all ranks
  };

  /// Adds a life sign as the program sent it; ignores unknown signs.
  void add(const std::string& word);

  Stage stage() const { return stage_; }
  /// Whether the rank leaves without the other ranks.
  bool fails() const { return fails_; }
  /// Whether it has failed and asks to be ended, since it may not be able to end itself.
  bool is_stuck() const { return is_stuck_; }
  /// Why the rank is about to end; code 0: not reported.
  const detail::EndSign& end() const { return end_; }
  /// Whether both ranks reported the same error.
  bool ends_like(const LifeSigns& other) const;
  /// The ranks that it waited for in vain; the first report counts, if it names ranks.
  const std::optional<detail::WaitSign>& waited() const { return waited_; }
  /// Whether the other ranks cannot continue without this rank.
  bool has_session() const { return stage_ != Stage::none && stage_ != Stage::left && !fails_; }
  /// The newest complete snapshot that it reported; empty: none.
  const std::string& snapshot() const { return snapshot_; }

 private:
  Stage stage_ = Stage::none;
  bool fails_ = false;
  bool is_stuck_ = false;
  detail::EndSign end_;
  std::optional<detail::WaitSign> waited_;
  std::string snapshot_;
};

}  // namespace lockstep::launcher
