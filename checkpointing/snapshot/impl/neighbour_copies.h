#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/checkpointing/snapshot/impl/mapped_file.h>
#include <lockstep/checkpointing/snapshot/impl/private_folder.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/collectives/impl/outcome.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::snapshot {

/// Copies each node's files of a snapshot in memory to the next node, so that all files survive the
/// loss of one node. The first rank of each node sends and receives in chunks: each advance()
/// completes one chunk and starts the next. Memory beyond the files: one chunk of each node.
/// Ranks: every call but exist() and is_chunk_done() is collective. Threads: one.
class NeighbourCopies {
 public:
  static constexpr size_t kChunkBytes = size_t{16} << 20;

  /// `folder`: contains the snapshots. `chunk_bytes`: sent by each node at a time.
  NeighbourCopies(detail::Agreement agreement, PrivateFolder folder, size_t chunk_bytes);
  NeighbourCopies(const NeighbourCopies&) = delete;
  NeighbourCopies& operator=(const NeighbourCopies&) = delete;

  /// Whether there is more than one node. The same on every rank.
  bool exist() const { return first_ranks_.size() > 1; }
  /// Starts to copy the files of the snapshot at `path`, which is the same on every node. The last
  /// advance() returns its errors.
  void start(const std::string& path);
  /// Whether this rank's part of the present chunk is sent and received.
  bool is_chunk_done();
  /// Copies the next chunk. Empty: not finished. At the end returns an empty text for success, or
  /// why the next node lacks the files. The same on every rank.
  std::optional<std::string> advance();
  /// Stops copying: the files may be removed. The next start() waits for chunks in flight.
  void abandon() noexcept;

 private:
  struct File {
    std::string name;
    size_t bytes;
  };
  /// What this rank sends to the next node, or receives from the one before.
  struct Stream {
    Communicator pair;  // rank 0 sends
    size_t from;        // index of the sending node
    std::vector<File> files = {};
    size_t file = 0;
    size_t done = 0;  // bytes of the file
    std::shared_ptr<MappedFile> source = nullptr;
    std::unique_ptr<OutputFile> target = nullptr;
    at::Tensor chunk = {};
    Work work = {};

    bool sends() const { return pair.rank() == 0; }
  };
  void attempt(const std::function<void()>& action);
  void end_chunk(Stream& stream);
  void begin_chunk(Stream& stream);
  void put_in_place(const Stream& stream) const;
  void remove_unfinished(const Stream& stream) const;
  std::string finish();

  size_t chunks_of(size_t bytes) const { return (bytes + chunk_bytes_ - 1) / chunk_bytes_; }

  detail::Agreement agreement_;
  PrivateFolder folder_;
  size_t chunk_bytes_;
  std::vector<int> first_ranks_;  // of each node
  std::vector<Stream> streams_;   // on the first rank of a node: one to send, one to receive
  std::string path_;
  size_t chunks_left_ = 0;   // of the node with the most chunks
  std::string failure_;      // of start(), on every rank
  detail::Outcome outcome_;  // of this rank, since start()
};

}  // namespace lockstep::snapshot
