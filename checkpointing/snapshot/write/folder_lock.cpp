#include <lockstep/checkpointing/snapshot/format/rejection.h>
#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/checkpointing/snapshot/impl/folder_lock.h>
#include <lockstep/checkpointing/snapshot/impl/folder_names.h>
#include <lockstep/collectives/impl/blocked_signals.h>

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

/// Whether a process with this number is alive on this host.
bool is_alive(Holder& holder) {
  const int process = std::atoi(holder["process"].c_str());
  return process > 0 && (::kill(process, 0) == 0 || errno == EPERM);
}

bool may_live_elsewhere(Holder& holder, Holder& own, int descriptor) {
  struct stat file {};
  const bool touched =
      ::fstat(descriptor, &file) == 0 && std::time(nullptr) - file.st_mtime < kSecondsWithoutTouch;
  const auto is_other_attempt = [&](const char* job, const char* attempt) {
    return !own[job].empty() && holder[job] == own[job] && holder[attempt] != own[attempt];
  };
  return touched && !is_other_attempt("job", "attempt") &&
         !is_other_attempt("launch", "launch-attempt");
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
  file_ = lockstep::detail::Descriptor(
      ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
  if (!file_.is_open()) {
    reject(path_, "cannot create the file: ", std::strerror(errno));
  }
  const bool kernel_refuses = ::flock(file_.number(), LOCK_EX | LOCK_NB) != 0;
  const bool kernel_decides = !kernel_refuses || errno == EWOULDBLOCK;
  if (!kernel_refuses && !is_in_place()) {
    return false;
  }
  Holder holder = parsed(text_in(file_.number()));
  Holder own = this_process();
  const bool here_too = is_on_this_host(holder, own);
  is_shared_ = kernel_refuses && here_too && holder["process"] == own["process"];
  const auto lives = [&] {
    if (is_shared_ || (!kernel_refuses && holder["host"].empty())) {
      return false;
    }
    if (kernel_decides && (kernel_refuses || here_too)) {
      return kernel_refuses;
    }
    return here_too ? is_alive(holder) : may_live_elsewhere(holder, own, file_.number());
  };
  if (lives()) {
    reject(path_, "another job writes its snapshots to this folder: process ", holder["process"],
           " on ", holder["host"], ", which started ", holder["start"],
           holder["job"].empty() ? "" : " as job " + holder["job"],
           ". Stop that job, or name another folder. Nothing was changed. (The lock of a job that "
           "died on another host runs out ",
           kSecondsWithoutTouch, " s after the job's end.)");
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
