#pragma once

#include <lockstep/checkpointing/snapshot/snapshot.h>
#include <lockstep/runtime/step/impl/trainable.h>

#include <string>

namespace lockstep::detail {

/// One line for each two names that are tied only in this model, or only in the snapshot.
std::string other_ties(const Snapshot& saved, const Trainable& trainable);

/// The items of `list`, separated by ", " or "; ", that `other` lacks; "without" if there are none.
std::string items_without(const std::string& list, const std::string& other);

}  // namespace lockstep::detail
