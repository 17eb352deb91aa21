#pragma once

#include <lockstep/checkpointing/snapshot/snapshot.h>
#include <lockstep/runtime/step/impl/trainable.h>

#include <string>

namespace lockstep::detail {

/// One line for each two names that are one tied weight only here, or only in the snapshot.
std::string other_ties(const Snapshot& saved, const Trainable& trainable);

/// The items of a list that `other` has not, "without" if there is none. Items end with ", " or
/// "; ".
std::string items_without(const std::string& list, const std::string& other);

}  // namespace lockstep::detail
