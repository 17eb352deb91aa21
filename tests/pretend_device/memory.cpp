#include "memory.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <tuple>
#include <vector>

#include "fault.h"
#include "recording.h"

namespace lockstep::pretend {
namespace {

constexpr size_t kAddresses = size_t{64} << 30;
constexpr int64_t kCapacity = int64_t{2} << 30;
constexpr size_t kUnit = 512;
constexpr int kPoison = 0xff;
constexpr c10::DeviceType kType = c10::DeviceType::CUDA;

struct Block {
  size_t bytes = 0;
  int pool = 0;
  c10::StreamId stream = 0;
  bool live = false;
  std::vector<Use> uses;
  std::set<c10::StreamId> kept_for;
};

struct PendingWrite {
  char* begin;
  size_t bytes;
  Moment moment;
  std::function<void()> write;
};

class Memory {
 public:
  Memory() {
    const int file = memfd_create("pretend_device", 0);
    TORCH_CHECK(file >= 0 && ftruncate(file, kAddresses) == 0, "no memory for a pretend device");
    device_ = map(file, PROT_NONE);
    host_ = map(file, PROT_READ | PROT_WRITE);
    close(file);
  }

  bool holds(const void* address) const {
    const auto* const byte = static_cast<const char*>(address);
    return byte >= device_ && byte < device_ + kAddresses;
  }
  void* on_host(const void* address) const {
    return host_ + (static_cast<const char*>(address) - device_);
  }

  void* take(size_t wanted, c10::StreamId stream) {
    const std::lock_guard<std::mutex> locked(mutex_);
    const size_t bytes = std::max((wanted + kUnit - 1) / kUnit, size_t{1}) * kUnit;
    TORCH_CHECK_WITH(OutOfMemoryError, in_use.current + static_cast<int64_t>(bytes) <= kCapacity,
                     "CUDA out of memory: tried to allocate ", bytes, " bytes of ", kCapacity);
    std::vector<char*>& spare = spare_[{pool_, stream, bytes}];
    char* data = nullptr;
    if (spare.empty()) {
      data = device_ + end_;
      end_ += bytes + kUnit;
      TORCH_CHECK(end_ <= kAddresses, "a pretend device has no addresses left");
      std::memset(on_host(data), kPoison, bytes);
      reserved.increase(bytes);
    } else {
      data = spare.back();
      spare.pop_back();
    }
    Block& block = blocks_[reinterpret_cast<uintptr_t>(data)];
    block.bytes = bytes;
    block.pool = pool_;
    block.stream = stream;
    block.live = true;
    in_use.increase(bytes);
    c10::reportMemoryUsageToProfiler(data, static_cast<int64_t>(bytes), in_use.current,
                                     reserved.current, c10::Device(kType, 0));
    return data;
  }

  void give_back(void* data) {
    const std::lock_guard<std::mutex> locked(mutex_);
    Block& block = blocks_.at(reinterpret_cast<uintptr_t>(data));
    if (!block.kept_for.empty()) {
      require_working();
    }
    std::memset(on_host(data), kPoison, block.bytes);
    block.live = false;
    const auto waited_for = [&](const Use& use) {
      return block.kept_for.count(use.moment.stream) != 0;
    };
    block.uses.erase(std::remove_if(block.uses.begin(), block.uses.end(), waited_for),
                     block.uses.end());
    block.kept_for.clear();
    spare_[{block.pool, block.stream, block.bytes}].push_back(static_cast<char*>(data));
    in_use.decrease(block.bytes);
    c10::reportMemoryUsageToProfiler(data, -static_cast<int64_t>(block.bytes), in_use.current,
                                     reserved.current, c10::Device(kType, 0));
  }

  void touch(const void* data, size_t bytes, Access access, c10::StreamId stream) {
    const std::lock_guard<std::mutex> locked(mutex_);
    const Use use{reinterpret_cast<uintptr_t>(data), reinterpret_cast<uintptr_t>(data) + bytes,
                  access, next_moment(stream)};
    Block* const block = find(use.begin);
    TORCH_CHECK(block != nullptr && (block->live || block->pool != 0), "stream ", stream,
                " uses memory of the device that has been given back");
    std::vector<Use> kept;
    for (const Use& other : block->uses) {
      const bool meet = other.begin < use.end && use.begin < other.end;
      const bool conflict = access == Access::write || other.access == Access::write;
      TORCH_CHECK(!meet || !conflict || ordered(other.moment, stream), "stream ", stream,
                  access == Access::write ? " writes" : " reads",
                  " memory of the device that stream ", other.moment.stream,
                  other.access == Access::write ? " writes" : " reads",
                  ", and no event says which is first");
      const bool covered = other.begin >= use.begin && other.end <= use.end &&
                           (access == Access::write ||
                            (other.access == Access::read && other.moment.stream == stream));
      if (!covered) {
        kept.push_back(other);
      }
    }
    kept.push_back(use);
    block->uses = std::move(kept);
  }

  void keep_for(const void* data, c10::StreamId stream) {
    const std::lock_guard<std::mutex> locked(mutex_);
    if (Block* const block = find(reinterpret_cast<uintptr_t>(data))) {
      block->kept_for.insert(stream);
    }
  }

  SavedMemory::Contents save() {
    const std::lock_guard<std::mutex> locked(mutex_);
    pool_ = ++pools_;
    SavedMemory::Contents contents{{host_, host_ + end_}, {}};
    for (const auto& [address, block] : blocks_) {
      contents.uses[address] = block.uses;
    }
    return contents;
  }
  void put_back(SavedMemory::Contents& contents) {
    const std::lock_guard<std::mutex> locked(mutex_);
    pool_ = 0;
    std::memcpy(host_, contents.bytes.data(), contents.bytes.size());
    for (auto& [address, block] : blocks_) {
      block.uses = std::move(contents.uses[address]);
    }
  }

  c10::CachingAllocator::Stat in_use;
  c10::CachingAllocator::Stat reserved;

 private:
  static char* map(int file, int protection) {
    void* const at = mmap(nullptr, kAddresses, protection, MAP_SHARED | MAP_NORESERVE, file, 0);
    TORCH_CHECK(at != MAP_FAILED, "no addresses for a pretend device");
    return static_cast<char*>(at);
  }

  Block* find(uintptr_t address) {
    auto after = blocks_.upper_bound(address);
    if (after == blocks_.begin()) {
      return nullptr;
    }
    --after;
    return address < after->first + after->second.bytes ? &after->second : nullptr;
  }

  char* device_;
  char* host_;
  size_t end_ = 0;
  std::mutex mutex_;
  std::map<uintptr_t, Block> blocks_;
  int pool_ = 0;
  int pools_ = 0;
  std::map<std::tuple<int, c10::StreamId, size_t>, std::vector<char*>> spare_;
};

Memory& memory() {
  static auto* const all = new Memory;
  return *all;
}

struct PinnedMemory {
  std::mutex mutex;
  std::map<uintptr_t, size_t> blocks;
  std::vector<PendingWrite> writes;
};
PinnedMemory& pinned() {
  static auto* const all = new PinnedMemory;
  return *all;
}

class DeviceMemory final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    const c10::Device device(kType, 0);
    if (bytes == 0) {
      return {nullptr, device};
    }
    void* const data = memory().take(bytes, current_stream());
    return {data, data, &give_back, device};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    touch(to, bytes, Access::write, current_stream());
    touch(from, bytes, Access::read, current_stream());
    std::memcpy(host_address(to), host_address(from), bytes);
  }
  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t /*pool*/) override {}
  void recordStream(const c10::DataPtr& data, c10::Stream stream) override {
    keep_for(data.get(), stream.id());
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex /*device*/) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    stats.allocated_bytes[0] = memory().in_use;
    stats.reserved_bytes[0] = memory().reserved;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex /*device*/) override {}
  void resetPeakStats(c10::DeviceIndex /*device*/) override { memory().in_use.reset_peak(); }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex /*device*/) override {
    return {static_cast<size_t>(kCapacity - memory().in_use.current),
            static_cast<size_t>(kCapacity)};
  }

 private:
  static void give_back(void* data) { memory().give_back(data); }
};

class HostMemory final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* const data = std::aligned_alloc(kUnit, (bytes / kUnit + 1) * kUnit);
    const std::lock_guard<std::mutex> locked(pinned().mutex);
    pinned().blocks[reinterpret_cast<uintptr_t>(data)] = bytes;
    return {data, data, &give_back, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &give_back; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    std::memcpy(to, from, bytes);
  }

 private:
  static void give_back(void* data) {
    require_working();
    const std::lock_guard<std::mutex> locked(pinned().mutex);
    pinned().blocks.erase(reinterpret_cast<uintptr_t>(data));
    std::free(data);
  }
};

DeviceMemory device_memory;
REGISTER_ALLOCATOR(kType, &device_memory)

/// What is written keeps its memory, which is given back without the lock.
template <typename Now>
void write_where(const Now& now) {
  std::vector<PendingWrite> due;
  {
    const std::lock_guard<std::mutex> locked(pinned().mutex);
    std::vector<PendingWrite>& writes = pinned().writes;
    const auto first = std::stable_partition(
        writes.begin(), writes.end(), [&](const PendingWrite& pending) { return !now(pending); });
    std::move(first, writes.end(), std::back_inserter(due));
    writes.erase(first, writes.end());
  }
  for (const PendingWrite& pending : due) {
    pending.write();
  }
}

}  // namespace

bool is_device_address(const void* address) {
  return memory().holds(address);
}

void* host_address(const void* address) {
  return memory().holds(address) ? memory().on_host(address) : const_cast<void*>(address);
}

SavedMemory::SavedMemory() : contents_(memory().save()) {}
SavedMemory::~SavedMemory() {
  memory().put_back(contents_);
}

void touch(const void* data, size_t bytes, Access access, c10::StreamId stream) {
  if (bytes > 0 && memory().holds(data)) {
    begin_operation();
    memory().touch(data, bytes, access, stream);
    note([=] { memory().touch(data, bytes, access, current_stream()); });
  }
}

void keep_for(const void* data, c10::StreamId stream) {
  memory().keep_for(data, stream);
}

bool is_pinned(const void* address) {
  const std::lock_guard<std::mutex> locked(pinned().mutex);
  const auto byte = reinterpret_cast<uintptr_t>(address);
  auto after = pinned().blocks.upper_bound(byte);
  return after != pinned().blocks.begin() && byte < (--after)->first + after->second;
}

c10::Allocator* pinned_allocator() {
  static auto* const allocator = new HostMemory;
  return allocator;
}

void write_later(void* host, size_t bytes, const Moment& moment, std::function<void()> write) {
  const std::lock_guard<std::mutex> locked(pinned().mutex);
  pinned().writes.push_back({static_cast<char*>(host), bytes, moment, std::move(write)});
}

void arrive(const Clock& reached) {
  write_where([&](const PendingWrite& pending) {
    const auto known = reached.find(pending.moment.stream);
    return known != reached.end() && known->second >= pending.moment.epoch;
  });
}

void write_now(const void* host, size_t bytes, c10::StreamId reader) {
  const auto* const begin = static_cast<const char*>(host);
  write_where([&](const PendingWrite& pending) {
    const bool meet = pending.begin < begin + bytes && begin < pending.begin + pending.bytes;
    TORCH_CHECK(!meet || ordered(pending.moment, reader), "stream ", reader,
                " reads host memory that stream ", pending.moment.stream,
                " writes, and no event says which is first");
    return meet;
  });
}

}  // namespace lockstep::pretend
