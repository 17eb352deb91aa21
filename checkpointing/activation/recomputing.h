#pragma once

#include <optional>

namespace lockstep {

/// True while this thread recomputes a checkpointed region for backward. A layer with state outside
/// its buffers (counters, moving averages) should call it before it changes that state.
bool is_recomputing() noexcept;

/// Overrides CheckpointOptions::early_stop for the regions whose forward runs on this thread in the
/// lifetime of the object. Objects nest; the innermost applies.
class EarlyStop {
 public:
  [[nodiscard]] explicit EarlyStop(bool enabled);
  ~EarlyStop();
  EarlyStop(const EarlyStop&) = delete;
  EarlyStop& operator=(const EarlyStop&) = delete;

  /// The value that applies on this thread; empty if there is no object.
  static std::optional<bool> in_force() noexcept;

 private:
  std::optional<bool> outer_;
};

namespace activation {

/// Makes is_recomputing() true in the lifetime of the object.
class RecomputingScope {
 public:
  [[nodiscard]] RecomputingScope() noexcept;
  ~RecomputingScope();
  RecomputingScope(const RecomputingScope&) = delete;
  RecomputingScope& operator=(const RecomputingScope&) = delete;
};

}  // namespace activation

}  // namespace lockstep
