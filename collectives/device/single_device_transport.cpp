#include <lockstep/collectives/device/single_device_transport.h>
#include <lockstep/collectives/impl/closure_calls.h>

#include <utility>

namespace lockstep::detail {
namespace {

class OnHost final : public Operation {
 public:
  explicit OnHost(Work work) : work_(std::move(work)) {}
  bool test() override { return work_.test(); }
  void wait() override { work_.wait(); }

 private:
  Work work_;
};

}  // namespace

SingleDeviceTransport::SingleDeviceTransport(Communicator host, c10::Device device)
    : host_(std::move(host)), device_(device) {}

Communicator& SingleDeviceTransport::host() {
  require_host();
  return host_;
}

std::shared_ptr<Operation> SingleDeviceTransport::all_reduce(const at::Tensor& tensor,
                                                             ReduceOp op) {
  return on_device(tensor) ? all_reduce_on_device(tensor, op)
                           : std::make_shared<OnHost>(host().all_reduce(tensor, op));
}

std::shared_ptr<Operation> SingleDeviceTransport::reduce_scatter(const at::Tensor& output,
                                                                 const at::Tensor& input,
                                                                 ReduceOp op) {
  return on_device(input) ? reduce_scatter_on_device(output, input, op)
                          : std::make_shared<OnHost>(host().reduce_scatter(output, input, op));
}

std::shared_ptr<Operation> SingleDeviceTransport::all_gather(const at::Tensor& output,
                                                             const at::Tensor& input) {
  return on_device(input) ? all_gather_on_device(output, input)
                          : std::make_shared<OnHost>(host().all_gather(output, input));
}

std::shared_ptr<Operation> SingleDeviceTransport::broadcast(const at::Tensor& tensor, int root) {
  return on_device(tensor) ? broadcast_on_device(tensor, root)
                           : std::make_shared<OnHost>(host().broadcast(tensor, root));
}

std::shared_ptr<Operation> SingleDeviceTransport::barrier() {
  return std::make_shared<OnHost>(host().barrier());
}

std::shared_ptr<Attendance> SingleDeviceTransport::attendance() const {
  const auto calls = closure_calls(host_);
  return calls ? calls->attendance() : nullptr;
}

std::string SingleDeviceTransport::attended_name() const {
  const auto calls = closure_calls(host_);
  return calls ? calls->name() : "";
}

}  // namespace lockstep::detail
