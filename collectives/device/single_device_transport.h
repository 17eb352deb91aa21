#pragma once

#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/impl/transport.h>

#include <memory>

namespace lockstep::detail {

/// Base class of a transport for the tensors of one device. `host`, a communicator of the same
/// ranks, gives ranks and sizes and carries all tensors that are not on that device.
class SingleDeviceTransport : public Transport {
 public:
  int rank() const final { return host_.rank(); }
  int size() const final { return host_.size(); }
  int local_rank() const final { return host_.local_rank(); }
  int local_size() const final { return host_.local_size(); }

  std::shared_ptr<Operation> all_reduce(const at::Tensor& tensor, ReduceOp op) final;
  std::shared_ptr<Operation> reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                            ReduceOp op) final;
  std::shared_ptr<Operation> all_gather(const at::Tensor& output, const at::Tensor& input) final;
  std::shared_ptr<Operation> broadcast(const at::Tensor& tensor, int root) final;
  std::shared_ptr<Operation> barrier() override;
  std::shared_ptr<Attendance> attendance() const final;
  std::string attended_name() const override;

 protected:
  SingleDeviceTransport(Communicator host, c10::Device device);

 private:
  virtual std::shared_ptr<Operation> all_reduce_on_device(const at::Tensor& tensor,
                                                          ReduceOp op) = 0;
  virtual std::shared_ptr<Operation> reduce_scatter_on_device(const at::Tensor& output,
                                                              const at::Tensor& input,
                                                              ReduceOp op) = 0;
  virtual std::shared_ptr<Operation> all_gather_on_device(const at::Tensor& output,
                                                          const at::Tensor& input) = 0;
  virtual std::shared_ptr<Operation> broadcast_on_device(const at::Tensor& tensor, int root) = 0;

  /// Throws if collectives over `host` are not allowed now (during a graph capture).
  virtual void require_host() const {}

  bool on_device(const at::Tensor& tensor) const { return tensor.device() == device_; }
  Communicator& host();

  Communicator host_;
  c10::Device device_;
};

}  // namespace lockstep::detail
