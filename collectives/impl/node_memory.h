#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>
#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/impl/descriptor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::detail {

/// Zeroed memory that the ranks of a node have together, mapped twice by each of them. A write
/// through published() reaches every rank. own() shows what was published, but a write through it
/// makes a copy of the page for this rank alone, which then no longer follows: find_written() finds
/// such pages, and restore() gives them up. The kernel does all of this, so a raw pointer or a
/// system call that writes is noticed as well as an operator.
/// Threads: one. Tensors over it keep it alive.
class NodeMemory : public std::enable_shared_from_this<NodeMemory> {
 public:
  /// Collective. Null on every rank if the memory cannot be had or cannot be mapped by every rank.
  /// Then rank 0 prints one line with the reason, which begins with `user` ("share_weights"): each
  /// rank keeps its own copy of the weights.
  static std::shared_ptr<NodeMemory> make(const Communicator& ranks, size_t bytes,
                                          const std::string& user);
  ~NodeMemory();
  NodeMemory(const NodeMemory&) = delete;
  NodeMemory& operator=(const NodeMemory&) = delete;

  /// Which ranks of the communicator share this memory, ascending.
  const std::vector<int>& ranks() const { return ranks_; }
  size_t bytes() const { return bytes_; }

  /// One-dimensional tensors over the bytes from `offset` on.
  at::Tensor published(size_t offset, int64_t numel, at::ScalarType dtype);
  at::Tensor own(size_t offset, int64_t numel, at::ScalarType dtype);

  /// The first byte that was written through own() and is not what is published. Gives up pages
  /// that were written with the same bytes. Local; no rank may publish meanwhile.
  std::optional<size_t> find_written() const;
  /// Gives up all that was written through own().
  void restore() const;

 private:
  static std::shared_ptr<NodeMemory> make_if_possible(const Communicator& ranks, size_t bytes,
                                                      std::string& why);
  NodeMemory(const Descriptor& file, size_t bytes, std::vector<int> ranks);
  at::Tensor tensor(char* data, int64_t numel, at::ScalarType dtype);
  std::optional<size_t> check_page(size_t offset) const;

  size_t bytes_;
  std::vector<int> ranks_;
  char* published_ = nullptr;
  char* own_ = nullptr;
  Descriptor page_map_;  // /proc/self/pagemap, which tells copied pages from others
};

}  // namespace lockstep::detail
