#include <lockstep/checkpointing/activation/recomputing.h>

namespace lockstep {

namespace {

thread_local int recomputing_depth = 0;
thread_local std::optional<bool> early_stop;

}  // namespace

bool is_recomputing() noexcept {
  return recomputing_depth > 0;
}

EarlyStop::EarlyStop(bool enabled) : outer_(early_stop) {
  early_stop = enabled;
}

EarlyStop::~EarlyStop() {
  early_stop = outer_;
}

std::optional<bool> EarlyStop::in_force() noexcept {
  return early_stop;
}

namespace activation {

RecomputingScope::RecomputingScope() noexcept {
  ++recomputing_depth;
}

RecomputingScope::~RecomputingScope() {
  --recomputing_depth;
}

}  // namespace activation

}  // namespace lockstep
