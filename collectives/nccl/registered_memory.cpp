#include <c10/util/Exception.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/collectives/nccl/registered_memory.h>

#include <algorithm>

namespace lockstep::detail {
namespace {

/// One rank's block; the destructor deregisters and frees it.
class Block {
 public:
  Block(const std::shared_ptr<NcclComm>& comm, const std::shared_ptr<DeviceLane>& lane,
        size_t bytes)
      : api_(comm->shared_api()), comm_(comm), lane_(lane) {
    const auto on_device = lane->enter_thread();
    if (api_->allocate(&memory_, bytes) != NcclStatus::success) {
      memory_ = nullptr;
      return;
    }
    registered_ = comm->register_memory(memory_, bytes, &token_);
  }
  ~Block() {
    if (memory_ == nullptr) {
      return;
    }
    std::shared_ptr<void> on_device;
    try {
      on_device = lane_->enter_thread();
      lane_->drain();
    } catch (const c10::Error&) {
      // the device has failed: nothing runs on it any more
    }
    deregister();
    api_->release(memory_);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  void* memory() const { return memory_; }
  bool registered() const { return registered_; }
  void deregister() {
    const std::shared_ptr<NcclComm> comm = comm_.lock();
    if (registered_ && comm != nullptr) {
      comm->deregister_memory(token_);
    }
    registered_ = false;
  }

 private:
  std::shared_ptr<NcclApi> api_;
  std::weak_ptr<NcclComm> comm_;
  std::shared_ptr<DeviceLane> lane_;
  void* memory_ = nullptr;
  void* token_ = nullptr;
  bool registered_ = false;
};

}  // namespace

at::Tensor registered_zeros(const std::shared_ptr<NcclComm>& comm,
                            const std::shared_ptr<DeviceLane>& lane, Communicator& host,
                            int64_t numel, at::ScalarType dtype) {
  const size_t bytes = std::max<size_t>(1, static_cast<size_t>(numel) * c10::elementSize(dtype));
  const Agreement agreement(host);
  std::shared_ptr<Block> block;
  agreement.attempt([&] {
    block = std::make_shared<Block>(comm, lane, bytes);
    if (block->memory() == nullptr) {
      lane->drain();  // throws CUDA's error if the device has failed: then memory is not the cause
    }
    LOCKSTEP_CHECK_CODE(block->memory() != nullptr, ExitCode::out_of_memory, "this rank has no ",
                        bytes,
                        " bytes of device memory left for a bucket; use a smaller model, more "
                        "checkpointing, or stop other programs on its device");
  });
  if (agreement.any(!block->registered())) {
    block->deregister();  // all ranks or none
  }
  return lane->zeros_on(block->memory(), numel, dtype, [block](void*) {});
}

}  // namespace lockstep::detail
