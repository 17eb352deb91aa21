#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/host/shared_memory.h>

#include <fcntl.h>
#include <lockstep/collectives/host/announced_file.h>
#include <lockstep/collectives/impl/descriptor.h>
#include <lockstep/collectives/impl/process_mark.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
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

using Mappings = std::vector<std::shared_ptr<SharedMemory>>;

bool all_succeeded(const MemoryPeers& peers, bool succeeded) {
  const char own = succeeded ? 1 : 0;
  std::vector<char> all(static_cast<size_t>(peers.size));
  peers.gather(&own, 1, all.data());
  return std::all_of(all.begin(), all.end(), [](char ok) { return ok != 0; });
}

bool resize(const Descriptor& file, size_t bytes) {
  return file.is_open() && ftruncate(file.number(), static_cast<off_t>(bytes)) == 0;
}

/// Tells the peers where its memory is and opens theirs; empty if a rank failed.
template <class Open>
Mappings map_peers(size_t bytes, const MemoryPeers& peers, const Descriptor& own_file,
                   const AnnouncedFile& own, Open open_path) {
  std::vector<AnnouncedFile> all(static_cast<size_t>(peers.size));
  peers.gather(&own, sizeof own, all.data());
  Mappings mappings;
  try {
    for (int k = 0; k < peers.size; ++k) {
      const AnnouncedFile& theirs = all[static_cast<size_t>(k)];
      const Descriptor opened(k == peers.rank ? -1 : open_path(theirs.path));
      const Descriptor& file = k == peers.rank ? own_file : opened;
      if (!has_mark(file, bytes, theirs)) {
        break;
      }
      mappings.push_back(SharedMemory::of_file(file.number(), bytes));
    }
  } catch (const Error&) {  // cannot be mapped
  }
  const bool succeeded = mappings.size() == all.size();
  return all_succeeded(peers, succeeded) ? mappings : Mappings();
}

/// Anonymous files, which peers open through /proc. No limit but the machine's memory.
Mappings share_memfd(size_t bytes, const MemoryPeers& peers) {
  const Descriptor file(memfd_create("lockstep", MFD_CLOEXEC));
  const AnnouncedFile own = resize(file, bytes) ? announce_anonymous(file, bytes) : AnnouncedFile{};
  return map_peers(bytes, peers, file, own,
                   [](const char* path) { return open(path, O_RDWR | O_CLOEXEC); });
}

/// Opens a named file, if it is a regular file that only this user may open.
int open_own(const char* name) {
  Descriptor file(shm_open(name, O_RDWR, 0600));  // follows no link
  struct stat info = {};
  const bool is_own = file.is_open() && fstat(file.number(), &info) == 0 && S_ISREG(info.st_mode) &&
                      info.st_uid == geteuid() && (info.st_mode & 077) == 0;
  return is_own ? file.release() : -1;
}

/// Named files in /dev/shm, for systems that hide /proc/PID from siblings.
Mappings share_named(size_t bytes, const MemoryPeers& peers) {
  AnnouncedFile own = {};
  const bool drawn = draw_mark(own);
  char name[sizeof own.path];
  std::snprintf(name, sizeof name, "/lockstep-%s-%016llx", own_mark().c_str(),
                static_cast<unsigned long long>(own.mark[0]));
  const Descriptor file(shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600));
  if (drawn && resize(file, bytes) &&
      posix_fallocate(file.number(), 0, static_cast<off_t>(bytes)) == 0 &&
      write_mark(file, bytes, own)) {
    std::memcpy(own.path, name, sizeof name);
  }
  Mappings mappings = map_peers(bytes, peers, file, own, open_own);
  if (file.is_open()) {
    shm_unlink(name);
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
  // Also keeps `own` in place until every rank has copied it.
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
                      "or enlarge /dev/shm, or start all ranks of a node in one container");
  return mappings;
}

}  // namespace lockstep::detail
