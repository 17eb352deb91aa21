// Calls of the C library that fail or mislead, for scripts/faults: a library for LD_PRELOAD.
//   LOCKSTEP_TEST_CALLS=FAULT:RANK:FOLDER    the fault, the rank, and the folder whose files it
//   hits
// Calls are as always until the program calls lockstep_test_fault_begins().
#include <dlfcn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>

namespace {

std::atomic<bool> has_begun{false};
std::atomic<unsigned> count{0};

struct Fault {
  std::string name;
  std::string folder;
};

/// The fault of this rank; no name: none. Never freed: calls come late in the end of a process.
const Fault& fault() {
  static const Fault& own = *[] {
    auto* made = new Fault();
    const char* setting = std::getenv("LOCKSTEP_TEST_CALLS");
    const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
    if (setting != nullptr) {
      const std::string text = setting;
      const size_t first = text.find(':');
      const size_t second = text.find(':', first + 1);
      if (text.substr(first + 1, second - first - 1) == (rank == nullptr ? "0" : rank)) {
        made->name = text.substr(0, first);
        made->folder = text.substr(second + 1) + "/";
      }
    }
    return made;
  }();
  return own;
}

bool is(const char* name) {
  return has_begun.load() && fault().name == name;
}

bool is_in_folder(const char* path) {
  return std::string(path).rfind(fault().folder, 0) == 0;
}

bool is_in_folder(int descriptor) {
  char link[64];
  char path[PATH_MAX] = {};
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
  return readlink(link, path, sizeof path - 1) > 0 && is_in_folder(path);
}

bool is_socket(int descriptor) {
  struct stat status = {};
  return fstat(descriptor, &status) == 0 && S_ISSOCK(status.st_mode);
}

template <typename Function>
Function real(Function, const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

/// The clock jumps a day ahead and a day back, again and again.
time_t jump() {
  return !is("clock-jump") ? 0 : (count++ / 50) % 2 == 0 ? 86400 : -86400;
}

void before_disk(int descriptor) {
  if (is("disk-slow") && is_in_folder(descriptor)) {
    usleep(200 * 1000);
  }
  while (is("disk-hangs") && is_in_folder(descriptor)) {
    pause();
  }
}

/// A packet is lost: TCP sends it again after its time-out of at least 200 ms.
void before_link(int descriptor) {
  if (is("link-lossy") && is_socket(descriptor) && count++ % 25 == 0) {
    usleep(200 * 1000);
  }
  if (is("link-slow") && is_socket(descriptor)) {
    usleep(5 * 1000);
  }
}

}  // namespace

#define REAL(name) static const auto real_##name = real(&::name, #name)

extern "C" {

void lockstep_test_fault_begins() {
  has_begun = true;
}

int clock_gettime(clockid_t clock, timespec* time) noexcept {
  REAL(clock_gettime);
  const int result = real_clock_gettime(clock, time);
  if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    time->tv_sec += jump();
  }
  return result;
}

int gettimeofday(timeval* time, void* zone) noexcept {
  REAL(gettimeofday);
  const int result = real_gettimeofday(time, zone);
  time->tv_sec += result == 0 ? jump() : 0;
  return result;
}

time_t time(time_t* out) noexcept {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) {
    *out = now.tv_sec;
  }
  return now.tv_sec;
}

ssize_t write(int descriptor, const void* data, size_t bytes) {
  REAL(write);
  before_disk(descriptor);
  before_link(descriptor);
  return real_write(descriptor, data, bytes);
}

ssize_t writev(int descriptor, const iovec* parts, int number) {
  REAL(writev);
  before_link(descriptor);
  return real_writev(descriptor, parts, number);
}

ssize_t send(int descriptor, const void* data, size_t bytes, int flags) {
  REAL(send);
  before_link(descriptor);
  return real_send(descriptor, data, bytes, flags);
}

ssize_t sendmsg(int descriptor, const msghdr* message, int flags) {
  REAL(sendmsg);
  before_link(descriptor);
  return real_sendmsg(descriptor, message, flags);
}

int fsync(int descriptor) {
  REAL(fsync);
  before_disk(descriptor);
  return real_fsync(descriptor);
}

/// NFS: a handle that is stale, once; or the answer is lost, and the second try finds no file.
int rename(const char* from, const char* to) noexcept {
  REAL(rename);
  if (is("rename-stale") && is_in_folder(from) && count++ == 0) {
    errno = ESTALE;
    return -1;
  }
  const int result = real_rename(from, to);
  if (is("rename-answer-lost") && is_in_folder(from) && count++ == 0) {
    errno = ENOENT;
    return -1;
  }
  return result;
}

/// NFS: a file that some process has open is renamed and not removed.
int unlink(const char* path) noexcept {
  REAL(unlink);
  REAL(rename);
  if (is("nfs-leftovers") && is_in_folder(path)) {
    const std::string text = path;
    const std::string folder = text.substr(0, text.rfind('/'));
    const std::string name = text.substr(text.rfind('/') + 1);
    if (name.rfind(".nfs", 0) == 0) {
      errno = EBUSY;
      return -1;
    }
    return real_rename(path, (folder + "/.nfs" + std::to_string(count++)).c_str());
  }
  return real_unlink(path);
}

}  // extern "C"
