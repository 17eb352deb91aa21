#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <lockstep/runtime/step/impl/step_graph.h>

#include "recording.h"

namespace lockstep::detail {

namespace {

class PretendStepGraph final : public StepGraph {
 public:
  explicit PretendStepGraph(c10::Device device)
      : guard_(device.type()), stream_(guard_.getStreamFromGlobalPool(device)) {}

  void run_apart(const std::function<void()>& work) override {
    const c10::Stream current = guard_.getStream(stream_.device());
    follow(stream_, current);
    {
      const c10::StreamGuard on(stream_);
      work();
    }
    follow(current, stream_);
  }
  void rehearse(const std::function<void()>& work) override {
    run_apart([&] { pretend::record(work); });
  }
  void capture(const std::function<void()>& work) override {
    run_apart([&] { recording_ = pretend::record(work); });
  }
  void launch() override {
    for (const auto& work : recording_) {
      work();
    }
  }

 private:
  static void follow(const c10::Stream& later, const c10::Stream& earlier) {
    c10::Event reached(earlier.device_type());
    reached.record(earlier);
    reached.block(later);
  }

  c10::impl::VirtualGuardImpl guard_;
  c10::Stream stream_;
  pretend::Recording recording_;
};

}  // namespace

std::unique_ptr<StepGraph> make_cuda_graph(c10::Device device) {
  return std::make_unique<PretendStepGraph>(device);
}

}  // namespace lockstep::detail
