#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lockstep::detail {

/// One rank's work for one collective, chunk by chunk. For each chunk the engine calls copy_in;
/// reduce once every rank has copied in; copy_out once every rank has reduced (or at once, if the
/// step does not wait for peers). Chunks may overlap: copy_in of the next chunk may come before
/// copy_out of this one.
class CollectiveStep {
 public:
  struct MemoryRange {
    const char* begin = nullptr;
    const char* end = nullptr;
    bool overlaps(const MemoryRange& other) const { return begin < other.end && other.begin < end; }
  };

  virtual ~CollectiveStep() = default;

  int64_t chunks() const { return chunks_; }
  /// Whether chunks go through the group's staging memory.
  bool staged() const { return staged_; }
  /// Whether a chunk ends on this rank only when every rank has reduced it.
  bool waits_for_peers() const { return waits_for_peers_; }
  /// Whether the two steps use the same memory of this rank's tensors.
  bool overlaps(const CollectiveStep& other) const {
    for (const MemoryRange& own : ranges_) {
      for (const MemoryRange& theirs : other.ranges_) {
        if (own.overlaps(theirs)) {
          return true;
        }
      }
    }
    return false;
  }

  virtual void copy_in(int64_t chunk, int slot) {}
  /// False while data of other nodes is missing; the engine then calls it again.
  virtual bool reduce(int64_t chunk, int slot) = 0;
  virtual void copy_out(int64_t chunk, int slot) {}

 protected:
  CollectiveStep(int64_t chunks, bool staged, bool waits_for_peers)
      : chunks_(chunks), staged_(staged), waits_for_peers_(waits_for_peers) {}
  void touches(size_t index, const void* data, size_t bytes) {
    const char* begin = static_cast<const char*>(data);
    ranges_[index] = {begin, begin + bytes};
  }

 private:
  int64_t chunks_;
  bool staged_;
  bool waits_for_peers_;
  std::array<MemoryRange, 2> ranges_;
};

}  // namespace lockstep::detail
