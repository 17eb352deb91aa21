#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/exceptions.h>
#include <optional>
#include <string>

namespace lockstep::detail {

// The failed saves of this process, so that a program whose last state is not on the disk does not
// end with exit code 0. Threads: any.

/// Notes the end of a save to `folder`. A save without `error` clears earlier failures there.
void note_save(const std::string& folder, const std::optional<Error>& error);

/// Returns the error of a folder whose last save failed, if any, and forgets all notes.
std::optional<Error> take_failed_save();

}  // namespace lockstep::detail
