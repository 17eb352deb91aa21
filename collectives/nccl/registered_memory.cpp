#include <c10/util/Exception.h>
#include <lockstep/collectives/error.h>
#include <lockstep/collectives/nccl/registered_memory.h>

#include <algorithm>
#include <string>
#include <vector>

namespace lockstep {
namespace {

enum class Got : char { nothing = 'n', memory = 'm', registered = 'r' };

/// One rank's block; gives back what it holds.
class Block {
 public:
  Block(const std::shared_ptr<NcclComm>& comm, const std::shared_ptr<DeviceLane>& lane,
        size_t bytes)
      : api_(comm->shared_api()), comm_(comm), lane_(lane) {
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
    try {
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
  Got got() const {
    return memory_ == nullptr ? Got::nothing : registered_ ? Got::registered : Got::memory;
  }
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
  auto block = std::make_shared<Block>(comm, lane, bytes);
  const std::vector<std::string> all =
      host.all_gather_bytes(std::string(1, static_cast<char>(block->got())));
  const auto first_with = [&](Got got) {
    return std::find(all.begin(), all.end(), std::string(1, static_cast<char>(got))) - all.begin();
  };
  const auto ranks = static_cast<int64_t>(all.size());
  const int64_t without = first_with(Got::nothing);
  LOCKSTEP_CHECK_CODE(without == ranks, ExitCode::out_of_memory, "rank ", host.rank(), " of ",
                      ranks, ": rank ", without, " has no ", bytes,
                      " bytes of device memory left for a bucket; use a smaller model, more "
                      "checkpointing, or stop other programs on its device");
  if (first_with(Got::memory) != ranks) {
    block->deregister();  // all ranks or none
  }
  return lane->zeros_on(block->memory(), numel, dtype, [block](void*) {});
}

}  // namespace lockstep
