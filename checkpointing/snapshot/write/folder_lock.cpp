#include <lockstep/checkpointing/snapshot/format/rejection.h>
#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/checkpointing/snapshot/impl/folder_lock.h>
#include <lockstep/checkpointing/snapshot/impl/folder_names.h>
#include <lockstep/collectives/impl/blocked_signals.h>
#include <lockstep/collectives/impl/process_mark.h>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <sstream>

namespace lockstep::snapshot {
namespace {

constexpr std::chrono::seconds kBetweenTouches(5);
constexpr int64_t kSecondsWithoutTouch = 30;

using Holder = std::map<std::string, std::string>;
using lockstep::detail::Descriptor;
using lockstep::detail::Life;

std::string first_line_of(const char* file) {
  std::string line;
  std::getline(std::ifstream(file) >> std::ws, line);
  return line;
}

std::string environment(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

/// The job and the attempt of the scheduler, or of `lockstep run`.
void add_job(Holder& holder) {
  for (const char* variable : {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID"}) {
    if (holder["job"].empty()) {
      holder["job"] = environment(variable);
    }
  }
  holder["attempt"] = environment("SLURM_RESTART_COUNT");
  holder["launch"] = environment("LOCKSTEP_LAUNCH");
  holder["launch-attempt"] = environment("LOCKSTEP_ATTEMPT");
}

Holder this_process() {
  Holder holder;
  char host[256] = {};
  ::gethostname(host, sizeof host - 1);
  holder["host"] = host;
  holder["boot"] = first_line_of("/proc/sys/kernel/random/boot_id");
  holder["process"] = std::to_string(::getpid());
  holder["mark"] = lockstep::detail::own_mark();
  char now[32] = {};
  const std::time_t time = std::time(nullptr);
  std::tm utc{};
  std::strftime(now, sizeof now, "%Y-%m-%d %H:%M:%S UTC", ::gmtime_r(&time, &utc));
  holder["start"] = now;
  add_job(holder);
  return holder;
}

std::string rendered(const Holder& holder) {
  std::string text;
  for (const auto& [key, value] : holder) {
    text += key + " " + value + "\n";
  }
  return text;
}

Holder parsed(const std::string& text) {
  Holder holder;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const size_t space = line.find(' ');
    if (space != std::string::npos) {
      holder[line.substr(0, space)] = line.substr(space + 1);
    }
  }
  return holder;
}

std::string text_in(int descriptor) {
  char text[4096];
  const ssize_t bytes = ::pread(descriptor, text, sizeof text, 0);
  return std::string(text, bytes > 0 ? static_cast<size_t>(bytes) : 0);
}

bool is_on_this_host(Holder& holder, Holder& own) {
  return holder["host"] == own["host"] && holder["boot"] == own["boot"];
}

/// Whether the process that a lock of this host names lives.
Life life_of(Holder& holder) {
  if (const auto mark = lockstep::detail::parse_process_mark(holder["mark"])) {
    return lockstep::detail::life_of(*mark);
  }
  const int process = std::atoi(holder["process"].c_str());
  return process > 0 && (::kill(process, 0) == 0 || errno == EPERM) ? Life::alive : Life::dead;
}

/// Whether it is an earlier start of the scheduler job, or of the `lockstep run`, that this is. Its
/// ranks have ended; processes that they left may still have the file open.
bool is_earlier_attempt(Holder& holder, Holder& own) {
  const auto is_other_attempt = [&](const char* job, const char* attempt) {
    return !own[job].empty() && holder[job] == own[job] && holder[attempt] != own[attempt];
  };
  return is_other_attempt("job", "attempt") || is_other_attempt("launch", "launch-attempt");
}

bool is_touched(int descriptor) {
  struct stat file {};
  return ::fstat(descriptor, &file) == 0 &&
         std::time(nullptr) - file.st_mtime < kSecondsWithoutTouch;
}

enum class Kernel { grants, refuses, unable };

Kernel ask_kernel(int descriptor) {
  return ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 ? Kernel::grants
         : errno == EWOULDBLOCK                      ? Kernel::refuses
                                                     : Kernel::unable;
}

/// Whether the job that the file names may write. Also a child of its dead rank, or anybody who may
/// read the file, can make the kernel refuse: what the file says of the holder decides.
bool may_write(Holder& holder, Holder& own, Kernel kernel, int descriptor) {
  if (holder["host"].empty()) {  // another job has just made the file
    return kernel == Kernel::refuses;
  }
  if (is_earlier_attempt(holder, own)) {
    return false;
  }
  if (!is_on_this_host(holder, own)) {
    return kernel == Kernel::refuses || is_touched(descriptor);
  }
  const Life life = life_of(holder);
  return kernel == Kernel::refuses ? life != Life::dead
                                   : kernel == Kernel::unable && life == Life::alive;
}

/// Opens the file, or makes it: then nobody else can open, and so lock, it before its maker has.
/// Closed if another job was faster.
Descriptor opened(const std::string& path, bool& is_new) {
  const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW;
  Descriptor file(::open(path.c_str(), flags));
  is_new = !file.is_open() && errno == ENOENT;
  if (is_new) {
    file = Descriptor(::open(path.c_str(), flags | O_CREAT | O_EXCL, 0600));
  }
  if (!file.is_open() && !(is_new && errno == EEXIST)) {
    reject(path, "cannot create the file: ", std::strerror(errno));
  }
  return file;
}

mode_t umask_of_process() {
  std::ifstream status("/proc/self/status");
  for (std::string key, value; std::getline(status, key, ':') && std::getline(status, value);) {
    if (key == "Umask") {
      return static_cast<mode_t>(std::strtoul(value.c_str(), nullptr, 8));
    }
  }
  return 077;
}

}  // namespace

FolderLock::FolderLock(const std::string& folder) : path_(absolute_path(folder + "/" + kLockName)) {
  while (!try_open()) {
  }
  if (is_shared_) {
    return;
  }
  const std::string text = rendered(this_process());
  if (::ftruncate(file_.number(), 0) != 0 ||
      ::pwrite(file_.number(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size())) {
    reject(path_, "cannot write: ", std::strerror(errno));
  }
  const lockstep::detail::BlockedSignals blocked;
  toucher_ = std::thread([this] { keep_fresh(); });
}

FolderLock::~FolderLock() {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
  }
  end_.notify_all();
  if (toucher_.joinable()) {
    toucher_.join();
    if (is_in_place()) {
      ::unlink(path_.c_str());
    }
  }
}

/// False if the file was removed meanwhile.
bool FolderLock::try_open() {
  bool is_new = false;
  file_ = opened(path_, is_new);
  if (!file_.is_open()) {
    return false;
  }
  const Kernel kernel = ask_kernel(file_.number());
  if (is_new) {
    ::fchmod(file_.number(), 0666 & ~umask_of_process());
  }
  if (kernel == Kernel::grants && !is_in_place()) {
    return false;
  }
  Holder holder = parsed(text_in(file_.number()));
  Holder own = this_process();
  is_shared_ = kernel == Kernel::refuses && is_on_this_host(holder, own) &&
               holder["process"] == own["process"] && life_of(holder) != Life::dead;
  if (is_shared_) {
    return true;
  }
  if (may_write(holder, own, kernel, file_.number())) {
    reject(path_, "another job writes its snapshots to this folder: ",
           holder["host"].empty()
               ? "it is just starting, and has not written its name"
               : "process " + holder["process"] + " on " + holder["host"] + ", which started " +
                     holder["start"] + (holder["job"].empty() ? "" : " as job " + holder["job"]),
           ". Stop that job, or name another folder. Nothing was changed. (The lock of a job that "
           "died on another host runs out ",
           kSecondsWithoutTouch, " s after the job's end.)");
  }
  if (kernel == Kernel::refuses) {
    // Others keep the file of a dead job locked. Of two jobs that replace it at the same moment,
    // one sees in require_held() that it lost.
    if (is_in_place() && ::unlink(path_.c_str()) != 0 && errno != ENOENT) {
      reject(path_, "cannot remove the lock of a job that has died: ", std::strerror(errno));
    }
    return false;
  }
  return true;
}

void FolderLock::require_held() const {
  if (!is_shared_ && !is_in_place()) {
    reject(path_,
           "was removed or replaced while this job ran, so another job may write to this "
           "folder; stop one of them, or name another folder");
  }
}

/// Whether the path still leads to the file that this object has opened.
bool FolderLock::is_in_place() const {
  struct stat here {};
  struct stat named {};
  return ::fstat(file_.number(), &here) == 0 && ::stat(path_.c_str(), &named) == 0 &&
         here.st_ino == named.st_ino && here.st_dev == named.st_dev;
}

void FolderLock::keep_fresh() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!end_.wait_for(lock, kBetweenTouches, [this] { return ended_; })) {
    ::futimens(file_.number(), nullptr);
  }
}

}  // namespace lockstep::snapshot
