#include <lockstep/collectives/solo_transport.h>

#include <ATen/ops/zeros.h>

namespace lockstep {
namespace {

class SoloTransport final : public Transport {
 public:
  explicit SoloTransport(c10::Device device) : device_(device) {}
  const char* name() const override { return "solo"; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  int local_rank() const override { return 0; }
  int local_size() const override { return 1; }

  std::shared_ptr<Operation> all_reduce(const at::Tensor& tensor, ReduceOp op) override {
    return record(Verb::all_reduce, tensor);
  }

  std::shared_ptr<Operation> reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                            ReduceOp op) override {
    output.view({-1}).copy_(input.view({-1}));
    return record(Verb::reduce_scatter, input);
  }

  std::shared_ptr<Operation> all_gather(const at::Tensor& output,
                                        const at::Tensor& input) override {
    output.view({-1}).copy_(input.view({-1}));
    return record(Verb::all_gather, input);
  }

  std::shared_ptr<Operation> broadcast(const at::Tensor& tensor, int root) override {
    return record(Verb::broadcast, tensor);
  }

  std::shared_ptr<Operation> barrier() override { return record({Verb::barrier}); }

  std::shared_ptr<Transport> split(int color, int key) override {
    record({Verb::split});
    return color < 0 ? nullptr : make_solo_transport(device_);
  }

  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override {
    record({Verb::allocate, dtype});
    return at::zeros({numel}, at::TensorOptions().dtype(dtype).device(device_));
  }

  void progress() override {}
  const CollectiveLog& log() const override { return log_; }

 private:
  std::shared_ptr<Operation> record(Verb verb, const at::Tensor& tensor) {
    CollectiveCall call{verb, tensor.scalar_type()};
    call.numel = tensor.numel();
    return record(call);
  }

  std::shared_ptr<Operation> record(CollectiveCall call) {
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

}  // namespace lockstep
