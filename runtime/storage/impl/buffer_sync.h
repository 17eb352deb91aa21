#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/model.h>
#include <lockstep/collectives/communicator.h>
#include <lockstep/runtime/policies.h>

#include <utility>
#include <vector>

namespace lockstep::detail {

/// Makes the buffers of a model (for example BatchNorm statistics) equal on all ranks, by a
/// BufferPolicy. Buffers of one kind travel in one array, so the number of collectives does not
/// grow with the number of buffers: one broadcast of rank 0's bytes for BufferPolicy::broadcast;
/// for BufferPolicy::average one all-reduce for each floating-point dtype and one broadcast for the
/// other buffers.
/// Ranks: run() is collective, unless the policy is none or there is one rank. Threads: one.
class BufferSync {
 public:
  BufferSync(BufferPolicy policy, Communicator communicator)
      : policy_(policy), communicator_(std::move(communicator)) {}

  /// `buffers`: dense, on the device of the communicator; the same names, sizes and dtypes on every
  /// rank. Lays out the arrays again if a buffer has other memory than in the last call. Autograd
  /// does not see the change of the buffers.
  void run(const std::vector<ModelTensor>& buffers);

 private:
  /// Buffers that travel together. Tensors are one-dimensional aliases of one dtype: the buffers'
  /// own, or bytes.
  struct Group {
    bool averaged = false;
    std::vector<at::Tensor> buffers;
    at::Tensor array;
    std::vector<at::Tensor> parts;  // of `array`, one for each buffer
  };

  bool laid_out_for(const std::vector<ModelTensor>& buffers) const;
  void lay_out(const std::vector<ModelTensor>& buffers);
  Group& group_for(at::ScalarType dtype, bool averaged);

  BufferPolicy policy_;
  Communicator communicator_;
  std::vector<at::Tensor> laid_out_;  // aliases of the buffers, as of the last layout
  std::vector<Group> groups_;
};

}  // namespace lockstep::detail
