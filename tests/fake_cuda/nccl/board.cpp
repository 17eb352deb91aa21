#include "board.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <random>
#include <set>
#include <system_error>

#include "reduction.h"

namespace fake_cuda {
namespace {

constexpr const char* kPrefix = "fake_nccl_";

/// The process that made a name, which is /fake_nccl_PID_STARTED_RANDOM and what splits append.
ProcessId maker_of(const std::string& name) {
  ProcessId maker;
  unsigned long started = 0;
  const size_t at = name.find(kPrefix);
  if (at == std::string::npos ||
      std::sscanf(name.c_str() + at, "fake_nccl_%d_%lu_", &maker.pid, &started) != 2) {
    return {};
  }
  maker.started = started;
  return maker;
}

/// Names of this process that nobody has forgotten. They are unlinked at its end; those of a
/// process that was killed by the next one that makes a name.
class OwnNames {
 public:
  static OwnNames& get() {
    static auto* const names = [] {
      auto* made = new OwnNames;
      std::atexit([] { OwnNames::get().unlink_all(); });
      return made;
    }();
    return *names;
  }

  void add(const std::string& name) {
    const std::lock_guard<std::mutex> lock(mutex_);
    names_.insert(name);
  }
  void remove(const std::string& name) {
    const std::lock_guard<std::mutex> lock(mutex_);
    names_.erase(name);
  }

 private:
  void unlink_all() {
    const std::lock_guard<std::mutex> lock(mutex_);
    for (const std::string& name : names_) {
      if (maker_of(name).pid == getpid()) {  // not of the parent, in a forked process
        shm_unlink(name.c_str());
      }
    }
  }

  std::mutex mutex_;
  std::set<std::string> names_;
};

void unlink_names_of_dead_processes() {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", error)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(kPrefix) && !is_alive(maker_of(name))) {
      shm_unlink(("/" + name).c_str());
    }
  }
}

BoardMemory* map_board(int file) {
  void* memory = ftruncate(file, sizeof(BoardMemory)) != 0
                     ? MAP_FAILED
                     : mmap(nullptr, sizeof(BoardMemory), PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_NORESERVE, file, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<BoardMemory*>(memory);
}

}  // namespace

std::string Signature::text() const {
  constexpr const char* kKinds[] = {"ncclAllReduce", "ncclReduceScatter", "ncclAllGather",
                                    "ncclBroadcast", "ncclReduce"};
  constexpr const char* kOps[] = {"sum", "product", "max", "min", "average", "pre-multiplied sum"};
  std::string text = std::string(kKinds[static_cast<int>(kind)]) + " of " + std::to_string(count) +
                     " " + name_of(static_cast<ncclDataType_t>(type));
  if (kind == CallKind::all_reduce || kind == CallKind::reduce_scatter ||
      kind == CallKind::reduce) {
    text += std::string(", ") + kOps[op];
  }
  if (kind == CallKind::broadcast || kind == CallKind::reduce) {
    text += ", root " + std::to_string(root);
  }
  return text;
}

std::string Board::make_name() {
  unlink_names_of_dead_processes();
  std::random_device random;
  for (;;) {
    const ProcessId self = this_process();
    const std::string name = std::string("/") + kPrefix + std::to_string(self.pid) + "_" +
                             std::to_string(self.started) + "_" + std::to_string(random());
    const int file = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600);
    if (file < 0 && errno == EEXIST) {
      continue;
    }
    if (file < 0 || ftruncate(file, sizeof(BoardMemory)) != 0) {
      throw std::system_error(errno, std::generic_category(), "shm_open " + name);
    }
    close(file);
    OwnNames::get().add(name);
    return name;
  }
}

std::shared_ptr<Board> Board::open(const std::string& name, Open how) {
  const int create = how == Open::existing_or_new ? O_CREAT : 0;
  const int file = shm_open(name.c_str(), O_RDWR | create, 0600);
  if (file < 0) {
    return nullptr;
  }
  BoardMemory* memory = map_board(file);
  close(file);
  return memory == nullptr ? nullptr : std::shared_ptr<Board>(new Board(name, memory));
}

Board::~Board() {
  munmap(memory_, sizeof(BoardMemory));
}

void Board::forget_name() {
  shm_unlink(name_.c_str());
  OwnNames::get().remove(name_);
}

ProcessId Board::maker() const {
  return maker_of(name_);
}

}  // namespace fake_cuda
