#pragma once

#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "process.h"

/// The memory that the ranks of a communicator share.
namespace fake_cuda {

constexpr int kMostRanks = 32;
constexpr size_t kSlotBytes = 1 << 20;
constexpr size_t kMailBytes = 16 << 10;

enum class CallKind : int32_t { all_reduce, reduce_scatter, all_gather, broadcast, reduce };

/// What all ranks must agree on.
struct Signature {
  CallKind kind = CallKind::all_reduce;
  int32_t type = 0;
  int32_t op = 0;  // an ncclRedOp_t, or kPremultipliedSum: each rank has its own factor
  int32_t root = 0;
  uint64_t count = 0;

  static constexpr int32_t kPremultipliedSum = ncclNumOps;
  bool operator==(const Signature&) const = default;
  std::string text() const;
};

/// What one rank tells the others. The counters are written last.
struct RankEntry {
  enum State : int32_t { absent, joining, joined, left };

  std::atomic<int32_t> state{absent};
  int32_t ranks = 0;  // as this rank believes
  ProcessId process;
  char device[64] = {};
  std::atomic<uint64_t> posted{0};  // parts of collectives in its slot so far
  std::atomic<uint64_t> read{0};    // parts of which it has read all slots
  Signature signature;
  std::atomic<uint64_t> split{0};  // 2n - 1: has posted its n-th color; 2n: has read all colors
  int32_t color = 0;
  int32_t key = 0;
};

/// The first failure that a rank has told the others.
struct SharedFailure {
  enum State : int32_t { none, writing, told };

  std::atomic<int32_t> state{none};
  int32_t rank = 0;
  char text[480] = {};
};

/// Messages of one rank to another.
struct Mailbox {
  std::atomic<uint64_t> sent{0};
  std::atomic<uint64_t> received{0};
  uint64_t count = 0;  // of the whole message
  int32_t type = 0;
  alignas(64) char data[kMailBytes];
};

/// Fresh memory is zero, which is the initial state of all of it. Pages that nobody touches cost
/// nothing.
struct BoardMemory {
  RankEntry ranks[kMostRanks];
  SharedFailure failure;
  alignas(4096) char slots[kMostRanks][kSlotBytes];
  Mailbox mail[kMostRanks][kMostRanks];  // [from][to]
};

/// A mapped board.
class Board {
 public:
  enum class Open { existing, existing_or_new };

  /// A name that nobody has, with a new board. Throws std::system_error.
  static std::string make_name();
  /// Null if there is none, or no memory.
  static std::shared_ptr<Board> open(const std::string& name, Open how);

  ~Board();
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;

  BoardMemory* operator->() { return memory_; }
  const std::string& name() const { return name_; }
  /// From now on nobody can open it.
  void forget_name();
  /// The process that made the name.
  ProcessId maker() const;

 private:
  Board(std::string name, BoardMemory* memory) : name_(std::move(name)), memory_(memory) {}

  std::string name_;
  BoardMemory* memory_;
};

}  // namespace fake_cuda
