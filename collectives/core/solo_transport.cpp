#include <lockstep/collectives/impl/transport.h>

#include <ATen/ops/zeros.h>
#include <lockstep/collectives/impl/graph_capture.h>

namespace lockstep::detail {
namespace {

class SoloTransport final : public Transport, public GraphCapture {
 public:
  explicit SoloTransport(c10::Device device) : device_(device) {}
  const char* name() const override { return "solo"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  int local_rank() const override { return 0; }
  int local_size() const override { return 1; }

  std::shared_ptr<Operation> all_reduce(const at::Tensor& tensor, ReduceOp op) override {
    return note(Verb::all_reduce, tensor);
  }

  std::shared_ptr<Operation> reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                            ReduceOp op) override {
    output.view({-1}).copy_(input.view({-1}));
    return note(Verb::reduce_scatter, input);
  }

  std::shared_ptr<Operation> all_gather(const at::Tensor& output,
                                        const at::Tensor& input) override {
    output.view({-1}).copy_(input.view({-1}));
    return note(Verb::all_gather, input);
  }

  std::shared_ptr<Operation> broadcast(const at::Tensor& tensor, int root) override {
    return note(Verb::broadcast, tensor);
  }

  std::shared_ptr<Operation> barrier() override { return note({Verb::barrier}); }

  std::shared_ptr<Transport> split(int color, int key) override {
    note({Verb::split});
    return color < 0 ? nullptr : make_solo_transport(device_);
  }

  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override {
    note({Verb::allocate, dtype});
    return at::zeros({numel}, at::TensorOptions().dtype(dtype).device(device_));
  }

  void progress() override {}
  GraphCapture* graph_capture() override { return this; }
  int64_t capture(CaptureKind, const CaptureWith& body) override {
    body([] {});
    return 0;
  }
  void launch(int64_t, const std::function<void()>& launch) override { launch(); }
  const CollectiveLog& log() const override { return log_; }

 private:
  std::shared_ptr<Operation> note(Verb verb, const at::Tensor& tensor) {
    CollectiveCall call{verb, tensor.scalar_type()};
    call.numel = tensor.numel();
    return note(call);
  }

  std::shared_ptr<Operation> note(CollectiveCall call) {
    log_.issue(call);
    log_.set_state(call.sequence, CollectiveLog::State::complete);
    return nullptr;
  }

  c10::Device device_;
  CollectiveLog log_;
};

}  // namespace

std::shared_ptr<Transport> make_solo_transport(c10::Device device) {
  return std::make_shared<SoloTransport>(device);
}

}  // namespace lockstep::detail
