#pragma once

#include <cstdint>
#include <functional>

namespace lockstep {

/// What the collectives of a record are.
enum class Recording : uint8_t {
  /// Left out: the record is thrown away, and no rank waits for another one. Shows whether the rest
  /// can be recorded, before it matters: NCCL may exchange addresses while it is recorded, so a
  /// rank that gives up in the middle would leave the others waiting.
  rehearsal,
  /// Part of the record.
  real,
};

/// Records device work on the caller's stream. Has to call `join` inside the record, behind all
/// else: what collectives gave to streams of their own is part of the record from then on.
using CaptureWith = std::function<void(const std::function<void()>& join)>;

}  // namespace lockstep
