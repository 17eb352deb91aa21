#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <c10/core/ScalarType.h>
#include <lockstep/collectives/reduce_op.h>

#include <cstdint>
#include <string>

namespace lockstep::detail {

enum class Verb : uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  broadcast,
  barrier,
  split,
  allocate,
  graph_launch,
  abandoned,
};

const char* verb_name(Verb verb);

/// One rank's call, with everything that must be equal on all ranks of a communicator.
/// Trivially copyable, so that ranks can compare it through shared memory.
struct CollectiveCall {
  static constexpr int64_t kPrivate = -1;  // `buffer` of a tensor outside of shared buffers

  Verb verb = Verb::barrier;
  c10::ScalarType dtype = c10::ScalarType::Byte;
  ReduceOp::Kind op = ReduceOp::Kind::sum;
  int32_t root = 0;
  int64_t numel = 0;  // of the tensor that every rank passes in
  double predivide = 1.0;
  int64_t buffer = kPrivate;
  int64_t buffer_offset = 0;  // bytes
  uint64_t sequence = 0;      // counts the calls on a communicator from 1

  bool operator==(const CollectiveCall& other) const;
  /// Equal for equal calls. Different calls have equal digests with probability 2^-64.
  uint64_t digest() const;
  /// Such as "all_reduce #12 of Half[4096], sum".
  std::string describe() const;
};

}  // namespace lockstep::detail
