#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <lockstep/runtime/step_graph.h>

namespace lockstep {
namespace {

class CudaStepGraph final : public StepGraph {
 public:
  explicit CudaStepGraph(c10::Device device)
      : stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())) {}

  void run_apart(const std::function<void()>& work) override {
    const c10::cuda::CUDAStream current = c10::cuda::getCurrentCUDAStream(stream_.device_index());
    at::cuda::CUDAEvent before;
    before.record(current);
    before.block(stream_);
    {
      const c10::cuda::CUDAStreamGuard guard(stream_);
      work();
    }
    at::cuda::CUDAEvent after;
    after.record(stream_);
    after.block(current);
  }

  void capture(const std::function<void()>& work) override {
    run_apart([&] {
      graph_.capture_begin();
      try {
        work();
      } catch (...) {
        drop_capture();
        throw;
      }
      graph_.capture_end();
    });
  }

  void replay() override { graph_.replay(); }

 private:
  /// What went wrong has often ended the capture as well.
  void drop_capture() {
    try {
      graph_.capture_end();
    } catch (const std::exception&) {
      return;
    }
  }

  c10::cuda::CUDAStream stream_;
  at::cuda::CUDAGraph graph_;
};

}  // namespace

std::unique_ptr<StepGraph> make_cuda_graph(c10::Device device) {
  return std::make_unique<CudaStepGraph>(device);
}

}  // namespace lockstep
