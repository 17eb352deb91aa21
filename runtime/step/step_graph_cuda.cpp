#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAEvent.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <lockstep/runtime/step/impl/step_graph.h>

#include <exception>
#include <map>

namespace lockstep::detail {
namespace {

/// Makes later work on `then` wait for the present work on `first`.
void order(const c10::cuda::CUDAStream& first, const c10::cuda::CUDAStream& then) {
  at::cuda::CUDAEvent reached;
  reached.record(first);
  reached.block(then);
}

/// For a LibTorch whose generators know one capture only; newer ones forget it with the graph.
template <typename State>
auto forget_capture(State& state, int) -> decltype(void(state.capturing_ = false)) {
  state.capturing_ = false;
}
template <typename State>
void forget_capture(State&, long) {}

/// A CUDA graph whose broken capture can be dropped: CUDA refuses to end it, and LibTorch's
/// capture_end() then leaves its allocators and random generators in capture mode.
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

/// What the graphs that one thread captures for one device share. They never run at the same time,
/// and none needs what another left in memory. So they share the memory, and the workspaces that
/// libraries keep for each stream: a further shape costs no further activations.
struct Family {
  explicit Family(c10::DeviceIndex device)
      : stream(c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device)) {}

  static std::shared_ptr<Family> of(c10::DeviceIndex device) {
    thread_local std::map<c10::DeviceIndex, std::weak_ptr<Family>> families;
    std::shared_ptr<Family> family = families[device].lock();
    if (family == nullptr) {
      family = std::make_shared<Family>(device);
      families[device] = family;
    }
    return family;
  }

  c10::cuda::CUDAStream stream;
  c10::MempoolId_t memory;  // pool of the graphs; new if there are none, as LibTorch wants
  int records = 0;
  at::cuda::CUDAEvent last_run;
};

class CudaStepGraph final : public StepGraph {
 public:
  explicit CudaStepGraph(c10::Device device) : family_(Family::of(device.index())) {}
  ~CudaStepGraph() override { family_->records -= recorded_ ? 1 : 0; }

  void run_apart(const std::function<void()>& work) override {
    const c10::cuda::CUDAStream stream = family_->stream;
    const c10::cuda::CUDAStream current = c10::cuda::getCurrentCUDAStream(stream.device_index());
    order(current, stream);
    std::exception_ptr error;
    try {
      const c10::cuda::CUDAStreamGuard guard(stream);
      work();
    } catch (...) {
      error = std::current_exception();
    }
    try {
      order(stream, current);
    } catch (...) {
      error = error != nullptr ? error : std::current_exception();
    }
    if (error != nullptr) {
      std::rethrow_exception(error);
    }
  }

  void rehearse(const std::function<void()>& work) override {
    Record forgotten;
    capture_in(forgotten, work);
  }

  void capture(const std::function<void()>& work) override {
    capture_in(graph_, work);
    recorded_ = true;
    ++family_->records;
  }

  void launch() override {
    const auto current = c10::cuda::getCurrentCUDAStream(family_->stream.device_index());
    family_->last_run.block(current);
    graph_.replay();
    family_->last_run.record(current);
  }

 private:
  /// Other threads may use CUDA during the capture.
  void capture_in(Record& graph, const std::function<void()>& work) {
    if (family_->records == 0) {
      family_->memory = at::cuda::graph_pool_handle();
    }
    run_apart([&] {
      graph.capture_begin(family_->memory, cudaStreamCaptureModeThreadLocal);
      try {
        work();
        graph.capture_end();
      } catch (...) {
        const std::exception_ptr error = std::current_exception();
        drop_capture(graph);
        std::rethrow_exception(error);
      }
    });
  }

  /// Ignores an error of its own: the caller throws what broke the capture.
  static void drop_capture(Record& graph) {
    try {
      graph.drop_capture();
    } catch (const std::exception&) {
      return;
    }
  }

  std::shared_ptr<Family> family_;
  Record graph_;
  bool recorded_ = false;
};

}  // namespace

std::unique_ptr<StepGraph> make_cuda_graph(c10::Device device) {
  return std::make_unique<CudaStepGraph>(device);
}

}  // namespace lockstep::detail
