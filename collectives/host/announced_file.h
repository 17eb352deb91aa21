#pragma once

#include <lockstep/collectives/impl/descriptor.h>

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep::detail {

/// Where peers find a rank's file of shared memory, and the random bytes by which they recognise
/// it: the rank writes them behind the memory. A peer in another PID namespace, or with another
/// /dev/shm, may find another file under the rank's name: that of a third rank or its own. Ranks
/// send it to each other as bytes.
struct AnnouncedFile {
  char path[128];  // empty: no memory
  std::array<uint64_t, 2> mark;
};

bool draw_mark(AnnouncedFile& announced);
bool write_mark(const Descriptor& file, size_t bytes, const AnnouncedFile& announced);
/// Whether this is the file that was announced.
bool has_mark(const Descriptor& file, size_t bytes, const AnnouncedFile& announced);

/// Draws and writes the mark of an anonymous file, which peers open through /proc. Without a path
/// if that fails, or if the file is not open.
AnnouncedFile announce_anonymous(const Descriptor& file, size_t bytes);

}  // namespace lockstep::detail
