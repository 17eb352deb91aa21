#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <lockstep/runtime/step_graph.h>

#include <exception>

namespace lockstep {
namespace {

/// What the device is given on `then` from now on starts after what `first` holds.
void order(const c10::cuda::CUDAStream& first, const c10::cuda::CUDAStream& then) {
  at::cuda::CUDAEvent reached;
  reached.record(first);
  reached.block(then);
}

/// Where LibTorch's generators know of one capture only; newer ones forget it with their graph.
template <typename State>
auto forget_capture(State& state, int) -> decltype(void(state.capturing_ = false)) {
  state.capturing_ = false;
}
template <typename State>
void forget_capture(State&, long) {}

/// CUDA refuses to end a capture that something has broken, and LibTorch's capture_end() then
/// leaves its allocators and random generators believing that it goes on.
class Record final : public at::cuda::CUDAGraph {
 public:
  void drop_capture() {
    if (capture_ended_) {
      return;
    }
    cudaGraph_t unfinished = nullptr;
    cudaStreamEndCapture(capture_stream_, &unfinished);
    if (unfinished != nullptr) {
      cudaGraphDestroy(unfinished);
    }
    cudaGetLastError();
    for (const auto& generator : captured_generator_states_) {
      forget_capture(*generator.first, 0);
    }
    c10::cuda::CUDACachingAllocator::endAllocateToPool(capture_dev_, mempool_id_);
    at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(mempool_id_);
    capture_ended_ = true;  // the destructor gives the pools back
  }
};

class CudaStepGraph final : public StepGraph {
 public:
  explicit CudaStepGraph(c10::Device device)
      : stream_(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device.index())) {}

  void run_apart(const std::function<void()>& work) override {
    const c10::cuda::CUDAStream current = c10::cuda::getCurrentCUDAStream(stream_.device_index());
    order(current, stream_);
    std::exception_ptr error;
    try {
      const c10::cuda::CUDAStreamGuard guard(stream_);
      work();
    } catch (...) {
      error = std::current_exception();
    }
    try {
      order(stream_, current);
    } catch (...) {
      error = error != nullptr ? error : std::current_exception();
    }
    if (error != nullptr) {
      std::rethrow_exception(error);
    }
  }

  /// Other threads may go on using CUDA meanwhile.
  void capture(const std::function<void()>& work) override {
    run_apart([&] {
      graph_.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
      try {
        work();
        graph_.capture_end();
      } catch (...) {
        const std::exception_ptr error = std::current_exception();
        drop_capture();
        std::rethrow_exception(error);
      }
    });
  }

  void replay() override { graph_.replay(); }

 private:
  /// What broke the capture is what the caller is told.
  void drop_capture() {
    try {
      graph_.drop_capture();
    } catch (const std::exception&) {
      return;
    }
  }

  c10::cuda::CUDAStream stream_;
  Record graph_;
};

}  // namespace

std::unique_ptr<StepGraph> make_cuda_graph(c10::Device device) {
  return std::make_unique<CudaStepGraph>(device);
}

}  // namespace lockstep
