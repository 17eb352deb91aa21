#pragma once

#include <lockstep/checkpointing/snapshot/impl/manifest.h>

#include <cstdint>
#include <functional>
#include <set>
#include <string>

namespace lockstep::snapshot {

/// The first missing file of a set such as model-00001-of-00003.safetensors with at least one name
/// in `names`; empty if all sets are complete.
std::string missing_of_sets(const std::set<std::string>& names);

/// Throws Error (exit code snapshot) with the file or tensor unless `files` (all of the snapshot in
/// `folder`) are complete sets in which no section has a tensor twice.
void check_cover(const FileRecords& files, const std::string& folder);

/// The number of elements of a tensor in a file of slices.
using SliceElements = std::function<int64_t(const std::string& file, const std::string& tensor)>;
/// Throws Error (exit code snapshot) unless the slices of each tensor hold each element once.
void check_slices(const FileRecords& files, const SliceElements& elements,
                  const std::string& folder);

}  // namespace lockstep::snapshot
