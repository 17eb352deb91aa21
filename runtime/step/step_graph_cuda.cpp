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
#include <memory>
#include <mutex>
#include <vector>

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
    // Throws if the capture broke before it had a pool.
    c10::cuda::CUDACachingAllocator::endAllocateToPool(capture_dev_, mempool_id_);
    capture_ended_ = true;  // the destructor gives the pools back
    at::getHostAllocator(at::kCUDA)->end_allocate_to_pool(mempool_id_);
  }
};

/// A stream for captures alone. LibTorch's pool gives each of its 32 streams to several users,
/// whose work a capture would take into the graph. Allocators remember streams, so none is ever
/// destroyed.
class CaptureStream {
 public:
  explicit CaptureStream(c10::DeviceIndex device) : device_(device) {
    const std::lock_guard<std::mutex> locked(mutex());
    std::vector<cudaStream_t>& free = spare()[device];
    if (free.empty()) {
      const c10::cuda::CUDAGuard guard(device);
      C10_CUDA_CHECK(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
    } else {
      stream_ = free.back();
      free.pop_back();
    }
  }
  ~CaptureStream() {
    const std::lock_guard<std::mutex> locked(mutex());
    spare()[device_].push_back(stream_);
  }
  CaptureStream(const CaptureStream&) = delete;
  CaptureStream& operator=(const CaptureStream&) = delete;

  c10::cuda::CUDAStream get() const { return c10::cuda::getStreamFromExternal(stream_, device_); }

 private:
  static std::mutex& mutex() {
    static auto* const all = new std::mutex;
    return *all;
  }
  static std::map<c10::DeviceIndex, std::vector<cudaStream_t>>& spare() {
    static auto* const all = new std::map<c10::DeviceIndex, std::vector<cudaStream_t>>;
    return *all;
  }

  c10::DeviceIndex device_;
  cudaStream_t stream_ = nullptr;
};

/// What the graphs that one thread captures for one device share. They never run at the same time,
/// and none needs what another left in memory. So they share the memory, and the workspaces that
/// libraries keep for each stream: a further shape costs no further activations.
struct Family {
  explicit Family(c10::DeviceIndex device) : own_stream(device), stream(own_stream.get()) {}

  static std::shared_ptr<Family> of(c10::DeviceIndex device) {
    thread_local std::map<c10::DeviceIndex, std::weak_ptr<Family>> families;
    std::shared_ptr<Family> family = families[device].lock();
    if (family == nullptr) {
      family = std::make_shared<Family>(device);
      families[device] = family;
    }
    return family;
  }

  CaptureStream own_stream;
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
    auto rehearsed = std::make_unique<Record>();
    capture_in(*rehearsed, work);
    rehearsed_ = std::move(rehearsed);
  }

  void capture(const std::function<void()>& work) override {
    capture_in(graph_, work);
    recorded_ = true;
    ++family_->records;
    rehearsed_.reset();
    c10::cuda::CUDACachingAllocator::emptyCache();
  }

  void launch() override {
    const auto current = c10::cuda::getCurrentCUDAStream(family_->stream.device_index());
    family_->last_run.block(current);
    graph_.replay();
    family_->last_run.record(current);
  }

 private:
  /// Other threads may use CUDA during the capture, in which LibTorch gives no memory back: what
  /// direct windows have left is given back before. The capture after a rehearsal gets its memory.
  void capture_in(Record& graph, const std::function<void()>& work) {
    if (family_->records == 0 && rehearsed_ == nullptr) {
      family_->memory = at::cuda::graph_pool_handle();
    }
    run_apart([&] {
      c10::cuda::device_synchronize();
      c10::cuda::CUDACachingAllocator::emptyCache();
      try {
        graph.capture_begin(family_->memory, cudaStreamCaptureModeThreadLocal);
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
  std::unique_ptr<Record> rehearsed_;  // keeps its memory for the capture
  Record graph_;
  bool recorded_ = false;
};

}  // namespace

std::unique_ptr<StepGraph> make_cuda_graph(c10::Device device) {
  return std::make_unique<CudaStepGraph>(device);
}

}  // namespace lockstep::detail
