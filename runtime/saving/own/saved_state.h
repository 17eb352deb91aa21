#pragma once

#include <lockstep/checkpointing/snapshot/impl/content.h>
#include <lockstep/checkpointing/snapshot/impl/snapshot_section.h>
#include <lockstep/checkpointing/snapshot/load.h>
#include <lockstep/checkpointing/snapshot/snapshot.h>
#include <lockstep/runtime/data/impl/state_archive.h>

#include <string>

namespace lockstep::detail {

/// Adds the state that `visit` names to a section of a snapshot that is to be saved. Refers to
/// tensors, does not copy them; `content` has a copy of `visit` for those that pass.
void save_state(const StateVisit& visit, snapshot::Content& content, const std::string& section);

/// Compares state with a section of a snapshot. Changes nothing. `unexpected` of the report: what
/// the section has and `visit` did not name.
snapshot::LoadReport check_state(const StateVisit& visit, const snapshot::SnapshotSection& section);

/// Loads state from a section of a snapshot, after check_state() found nothing wrong.
void load_state(const StateVisit& visit, const snapshot::SnapshotSection& section);

/// Adds state that differs between ranks to a snapshot, as each rank's own.
void save_own_state(const StateVisit& visit, snapshot::Content& content,
                    const std::string& section);

/// Loads what save_own_state() saved for `rank`. What was not saved stays as it is.
void load_own_state(const StateVisit& visit, const Snapshot& saved, const std::string& section,
                    int rank);

/// Throws Error for a part: state that is spread over ranks cannot be each rank's own.
void require_no_part(const StateEntry& entry);

}  // namespace lockstep::detail
