#pragma once

#include <lockstep/inputs/datasets/files/mapped_data.h>

#include <cstddef>
#include <string>
#include <vector>

namespace lockstep::detail {

/// A regular file in a tar file.
struct TarEntry {
  std::string name;
  size_t begin;  // offset of its bytes, which are contiguous in the tar file
  size_t size;
};

/// All regular files, in the order of the tar file. Throws Error (exit code data) with file and
/// byte offset, or Error (exit code environment) if this build has no libarchive.
std::vector<TarEntry> tar_entries(const MappedData& file);

}  // namespace lockstep::detail
