#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>
#include <lockstep/collectives/impl/collective_log.h>
#include <lockstep/collectives/reduce_op.h>
#include <lockstep/collectives/work.h>

#include <functional>
#include <memory>
#include <string>

namespace lockstep::detail {

class Attendance;
class GraphCapture;

/// Implements the collectives of one communicator: solo, thread, mpi (and, on GPUs, nccl and
/// staged). Communicator has checked the arguments; tensors are dense and contiguous.
/// Operations are executed in the order in which they are issued, the same on every rank.
class Transport {
 public:
  virtual ~Transport() = default;

  virtual const char* name() const = 0;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// The ranks of this rank's node, and this rank's number among them.
  virtual int local_rank() const = 0;
  virtual int local_size() const = 0;

  virtual std::shared_ptr<Operation> all_reduce(const at::Tensor& tensor, ReduceOp op) = 0;
  virtual std::shared_ptr<Operation> reduce_scatter(const at::Tensor& output,
                                                    const at::Tensor& input, ReduceOp op) = 0;
  virtual std::shared_ptr<Operation> all_gather(const at::Tensor& output,
                                                const at::Tensor& input) = 0;
  virtual std::shared_ptr<Operation> broadcast(const at::Tensor& tensor, int root) = 0;
  virtual std::shared_ptr<Operation> barrier() = 0;
  /// Collective. Null for a negative color.
  virtual std::shared_ptr<Transport> split(int color, int key) = 0;
  /// Collective. Zeroed memory in which this transport is fastest.
  virtual at::Tensor allocate(int64_t numel, at::ScalarType dtype) = 0;
  virtual void progress() = 0;
  /// Null if the host takes part in collectives, so that they cannot be captured.
  virtual GraphCapture* graph_capture() { return nullptr; }
  /// Whether ranks can leave pending collectives together (ClosureCalls). Then attend() makes this
  /// transport, and what is split from it later, follow `attendance`. `name`: equal on the ranks of
  /// this transport; no other transport has it.
  virtual bool can_be_left() const { return false; }
  virtual void attend(const std::shared_ptr<Attendance>& attendance, const std::string& name) {}
  /// That of the host's communicator which carries the collectives, or goes with them.
  virtual std::shared_ptr<Attendance> attendance() const { return nullptr; }
  virtual std::string attended_name() const { return ""; }
  /// Calls `callback` again and again while this rank waits.
  virtual void on_idle(std::function<void()> callback) {}
  /// Whether a sum is rounded to the tensor's dtype at each rank on its way. False: it is computed
  /// in fp32 and rounded once.
  virtual bool rounds_at_each_rank() const { return false; }
  /// The calls of this rank.
  virtual const CollectiveLog& log() const = 0;
};

/// A world of one rank: every collective is complete when it returns. Tensors on any device.
std::shared_ptr<Transport> make_solo_transport(c10::Device device = c10::kCPU);

}  // namespace lockstep::detail
