#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/exceptions.h>
#include <optional>
#include <string>

namespace lockstep::detail {

// Which saves of this process failed, so that a program whose last state is not on the disk does
// not end with exit code 0. Threads: any.

/// Notes how a save to `folder` ended; no error if it succeeded, which makes good for earlier ones.
void note_save(const std::string& folder, const std::optional<Error>& error);

/// The error of a folder whose last save failed, if there is one. Forgets all that was noted.
std::optional<Error> take_failed_save();

}  // namespace lockstep::detail
