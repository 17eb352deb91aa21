#include <lockstep/collectives/host/shared_memory.h>

#include <fcntl.h>
#include <lockstep/collectives/error.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace lockstep::detail {
namespace {

constexpr size_t kHugePage = size_t{1} << 21;

char* map(size_t bytes, int flags, int descriptor) {
  void* data = mmap(nullptr, std::max<size_t>(bytes, 1), PROT_READ | PROT_WRITE, flags, descriptor,
                    /*offset=*/0);
  LOCKSTEP_CHECK_CODE(data != MAP_FAILED, ExitCode::out_of_memory, "cannot map ", bytes,
                      " bytes of shared memory: ", std::strerror(errno));
  if (bytes >= kHugePage) {
    madvise(data, bytes, MADV_HUGEPAGE);
  }
  return static_cast<char*>(data);
}

/// Closes a file descriptor.
class Descriptor {
 public:
  explicit Descriptor(int value) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) {
      close(value_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int value() const { return value_; }
  bool valid() const { return value_ >= 0; }

 private:
  int value_;
};

using Mappings = std::vector<std::shared_ptr<SharedMemory>>;

/// Where a peer finds a rank's memory.
struct FileName {
  char path[96];
};

bool all_succeeded(const MemoryPeers& peers, bool succeeded) {
  const char own = succeeded ? 1 : 0;
  std::vector<char> all(static_cast<size_t>(peers.size));
  peers.gather(&own, 1, all.data());
  return std::all_of(all.begin(), all.end(), [](char ok) { return ok != 0; });
}

std::shared_ptr<SharedMemory> map_file(const Descriptor& file, size_t bytes) {
  return file.valid() ? SharedMemory::of_file(file.value(), bytes) : nullptr;
}

/// Tells the peers a name and opens theirs; empty unless everybody succeeded.
template <class Open>
Mappings map_peers(size_t bytes, const MemoryPeers& peers, const Descriptor& own_file,
                   const FileName& own_name, Open open_name) {
  std::vector<FileName> names(static_cast<size_t>(peers.size));
  peers.gather(&own_name, sizeof own_name, names.data());
  Mappings mappings(static_cast<size_t>(peers.size));
  bool succeeded = true;
  for (int k = 0; k < peers.size && succeeded; ++k) {
    try {
      const size_t i = static_cast<size_t>(k);
      mappings[i] = k == peers.rank ? map_file(own_file, bytes)
                                    : map_file(Descriptor(open_name(names[i].path)), bytes);
      succeeded = mappings[i] != nullptr;
    } catch (const Error&) {
      succeeded = false;
    }
  }
  return all_succeeded(peers, succeeded) ? mappings : Mappings();
}

bool resize(const Descriptor& file, size_t bytes) {
  return file.valid() && ftruncate(file.value(), static_cast<off_t>(bytes)) == 0;
}

/// Anonymous files, which peers open through /proc. No limit but the machine's memory.
Mappings share_memfd(size_t bytes, const MemoryPeers& peers) {
  const Descriptor file(memfd_create("lockstep", MFD_CLOEXEC));
  FileName name = {};
  if (resize(file, bytes)) {
    std::snprintf(name.path, sizeof name.path, "/proc/%d/fd/%d", static_cast<int>(getpid()),
                  file.value());
  }
  return map_peers(bytes, peers, file, name,
                   [](const char* path) { return open(path, O_RDWR | O_CLOEXEC); });
}

/// Named files in /dev/shm, for systems that hide /proc/PID from siblings.
Mappings share_named(size_t bytes, const MemoryPeers& peers) {
  static std::atomic<int> count{0};
  FileName name = {};
  std::snprintf(name.path, sizeof name.path, "/lockstep-%d-%d", static_cast<int>(getpid()),
                count++);
  const Descriptor file(shm_open(name.path, O_RDWR | O_CREAT | O_EXCL, 0600));
  const bool resized =
      resize(file, bytes) && posix_fallocate(file.value(), 0, static_cast<off_t>(bytes)) == 0;
  const FileName announced = resized ? name : FileName{};
  Mappings mappings = map_peers(bytes, peers, file, announced,
                                [](const char* path) { return shm_open(path, O_RDWR, 0600); });
  if (file.valid()) {
    shm_unlink(name.path);
  }
  return mappings;
}

}  // namespace

std::shared_ptr<SharedMemory> SharedMemory::for_threads(size_t bytes) {
  char* data = map(bytes, MAP_PRIVATE | MAP_ANONYMOUS, -1);
  return std::shared_ptr<SharedMemory>(new SharedMemory(data, bytes));
}

std::shared_ptr<SharedMemory> SharedMemory::of_file(int descriptor, size_t bytes) {
  char* data = map(bytes, MAP_SHARED, descriptor);
  return std::shared_ptr<SharedMemory>(new SharedMemory(data, bytes));
}

SharedMemory::~SharedMemory() {
  munmap(data_, std::max<size_t>(bytes_, 1));
}

std::vector<std::shared_ptr<SharedMemory>> share_among_threads(size_t bytes,
                                                               const MemoryPeers& peers) {
  std::shared_ptr<SharedMemory> own;
  try {
    own = SharedMemory::for_threads(bytes);
  } catch (const Error&) {
    own = nullptr;
  }
  const std::shared_ptr<SharedMemory>* address = &own;
  std::vector<const std::shared_ptr<SharedMemory>*> addresses(static_cast<size_t>(peers.size));
  peers.gather(&address, sizeof address, addresses.data());
  Mappings mappings;
  for (const auto* memory : addresses) {
    mappings.push_back(*memory);
  }
  const bool succeeded = std::find(mappings.begin(), mappings.end(), nullptr) == mappings.end();
  // Also keeps `own` where it is until everybody has copied it.
  LOCKSTEP_CHECK_CODE(all_succeeded(peers, succeeded), ExitCode::out_of_memory, "rank ", peers.rank,
                      ": cannot share ", bytes, " bytes a rank among ", peers.size, " threads");
  return mappings;
}

std::vector<std::shared_ptr<SharedMemory>> share_among_processes(size_t bytes,
                                                                 const MemoryPeers& peers) {
  Mappings mappings = share_memfd(bytes, peers);
  if (mappings.empty()) {
    mappings = share_named(bytes, peers);
  }
  LOCKSTEP_CHECK_CODE(!mappings.empty(), ExitCode::environment, "rank ", peers.rank,
                      ": cannot share ", bytes, " bytes a rank among the ", peers.size,
                      " ranks of this node, neither by /proc/PID/fd nor in /dev/shm; free memory, "
                      "or enlarge /dev/shm");
  return mappings;
}

}  // namespace lockstep::detail
