#pragma once

#include <nccl.h>

#include <cstddef>
#include <cstdint>

#include "communicator.h"

namespace fake_cuda {

/// One collective while it runs. A value: each launch of a graph runs a copy.
///
/// Sums ascend with the ranks, for each element: ((x0 + x1) + x2) + ...; each step rounds to the
/// type of the elements, and so does the product with a factor, as in a ring of NCCL. All-reduce,
/// reduce and reduce-scatter give the same bits.
class Collective {
 public:
  Collective(const Signature& signature, const Reduction& reduction, const void* input,
             void* output)
      : signature_(signature),
        reduction_(reduction),
        input_(static_cast<const char*>(input)),
        output_(static_cast<char*>(output)) {}

  /// Tells of the memory that will be used; throws DeviceFault.
  void begin(ncclComm& comm);
  /// Goes as far as the other ranks permit; true at the end. May fail the communicator.
  bool advance(ncclComm& comm);
  /// The result of what was aborted is NaN.
  void poison(ncclComm& comm);
  bool moved() const { return moved_; }

 private:
  size_t element() const;
  size_t elements_of_part(const ncclComm& comm) const;
  size_t input_blocks(const ncclComm& comm) const;
  size_t output_blocks(const ncclComm& comm) const;
  bool has_output(const ncclComm& comm) const;
  void post(ncclComm& comm, size_t count);
  void copy_in(char* slot, size_t offset, size_t count);
  bool calls_are_equal(ncclComm& comm);
  void take(ncclComm& comm, size_t count);
  void sum(ncclComm& comm, size_t block, size_t count);

  Signature signature_;
  Reduction reduction_;
  const char* input_;
  char* output_;
  double factor_ = 1;
  uint64_t done_ = 0;  // elements of each block
  bool posted_ = false;
  bool moved_ = false;
};

}  // namespace fake_cuda
