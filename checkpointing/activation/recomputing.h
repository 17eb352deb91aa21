#pragma once

#include <optional>

namespace lockstep {

/// True while this thread recomputes a checkpointed region for backward: a layer with state of its
/// own (counters, moving averages) asks before it changes that state.
bool is_recomputing() noexcept;

/// Overrides CheckpointOptions::early_stop for the regions whose forward runs on this thread while
/// the object lives. Objects nest; the innermost counts.
class EarlyStop {
 public:
  explicit EarlyStop(bool enabled);
  ~EarlyStop();
  EarlyStop(const EarlyStop&) = delete;
  EarlyStop& operator=(const EarlyStop&) = delete;

  /// What is in force on this thread, if anything.
  static std::optional<bool> in_force() noexcept;

 private:
  std::optional<bool> outer_;
};

namespace activation {

/// is_recomputing() for the life of the object.
class RecomputingScope {
 public:
  RecomputingScope() noexcept;
  ~RecomputingScope();
  RecomputingScope(const RecomputingScope&) = delete;
  RecomputingScope& operator=(const RecomputingScope&) = delete;
};

}  // namespace activation

}  // namespace lockstep
