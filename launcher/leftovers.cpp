#include "leftovers.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

namespace lockstep::launcher {
namespace {

constexpr std::string_view digits = "0123456789";
constexpr std::string_view hex_digits = "0123456789abcdef";
constexpr std::string_view word_characters =
    "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz._";
// Of the PID namespace that a machine starts with, whose /proc shows all processes: the kernel's
// PROC_PID_INIT_INO.
constexpr const char* first_namespace = "pid:[4026531836]";
constexpr int session_depth = 2;  // pid.N/JOB/RANK

/// Reads a name from its beginning to its end.
class NameReader {
 public:
  explicit NameReader(std::string_view name) : rest_(name) {}

  bool word(std::string_view expected) {
    const bool found = rest_.substr(0, expected.size()) == expected;
    rest_.remove_prefix(found ? expected.size() : 0);
    return found;
  }
  /// One or more of these characters, as many as there are.
  std::string_view run_of(std::string_view characters) {
    const size_t size = std::min(rest_.find_first_not_of(characters), rest_.size());
    const std::string_view found = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return found;
  }
  /// A number as programs print it: without leading zeros. Nothing for one that is no int.
  std::optional<int> number() {
    const std::string_view text = run_of(digits);
    if (text.empty() || text.size() > 10 || (text.front() == '0' && text.size() > 1)) {
      return std::nullopt;
    }
    int64_t value = 0;
    for (const char digit : text) {
      value = value * 10 + (digit - '0');
    }
    return value <= INT_MAX ? std::make_optional(static_cast<int>(value)) : std::nullopt;
  }
  bool ended() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

/// The process in a name that a rank gives to a file in shared memory; nothing for another name.
/// collectives/host/shared_memory.cpp and collectives/core/roll_call.cpp make these names.
std::optional<int> process_in_file(const std::string& name) {
  NameReader memory(name);
  if (memory.word("lockstep-")) {
    const auto process = memory.number();
    const bool matches = memory.word("-") && memory.run_of(hex_digits).size() == 16;
    return matches && memory.ended() ? process : std::nullopt;
  }
  NameReader arrival(name);
  if (arrival.word("lockstep_")) {
    const auto process = arrival.number();
    const bool matches = (arrival.word("-start-") || arrival.word("-end-")) &&
                         !arrival.run_of(word_characters).empty() && arrival.word("-") &&
                         arrival.number() && arrival.word("-") && arrival.number();
    return matches && arrival.ended() ? process : std::nullopt;
  }
  return std::nullopt;
}

/// "HOST.UID", as Open MPI names its files.
std::string host_and_user() {
  std::array<char, 256> host = {};
  gethostname(host.data(), host.size() - 1);
  return std::string(host.data()) + "." + std::to_string(geteuid());
}

bool is_segment(const std::string& name) {
  NameReader reader(name);
  if (!reader.word("vader_segment." + host_and_user() + ".")) {
    return false;
  }
  const std::string_view job = reader.run_of(hex_digits);  // 32 bits, as "%x" prints them
  return !job.empty() && job.size() <= 8 && (job.front() != '0' || job.size() == 1) &&
         reader.word(".") && reader.number() && reader.ended();
}

std::optional<int> process_in_session(const std::string& name) {
  NameReader reader(name);
  const auto process = reader.word("pid.") ? reader.number() : std::nullopt;
  return reader.ended() ? process : std::nullopt;
}

/// A job's or a rank's folder in a session folder, or one in which PMIx keeps what ranks publish.
bool is_folder_of_session(const std::string& name) {
  NameReader number(name);
  NameReader store(name);
  return (number.number() && number.ended()) ||
         (store.word("pmix_dstor_") && !store.run_of(word_characters).empty() && store.ended());
}

bool is_file_of_session(const std::string& name) {
  for (const char* whole : {"contact.txt", "debugger_attach_fifo", "dstore_sm.lock", "hwloc.sm"}) {
    if (name == whole) {
      return true;
    }
  }
  for (const char* beginning : {"initial-pmix_shared-segment-", "smdataseg-", "smlockseg-",
                                "smseg-", "vader_segment.", "osc_rdma.", "osc_sm.", "pmix."}) {
    NameReader reader(name);
    if (reader.word(beginning) && !reader.run_of(std::string(word_characters) + "-").empty() &&
        reader.ended()) {
      return true;
    }
  }
  return false;
}

struct CloseFolder {
  void operator()(DIR* folder) const { closedir(folder); }
};
using Folder = std::unique_ptr<DIR, CloseFolder>;

Folder opened(int descriptor) {
  DIR* folder = descriptor < 0 ? nullptr : fdopendir(descriptor);
  if (folder == nullptr && descriptor >= 0) {
    close(descriptor);
  }
  return Folder(folder);
}

Folder open_folder(const std::string& path) {
  return opened(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

/// A folder of this user and no link; null for others.
Folder open_own_folder(const Folder& parent, const std::string& name) {
  if (!parent) {
    return nullptr;
  }
  Folder folder = opened(
      openat(dirfd(parent.get()), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat info = {};
  const bool is_own = folder && fstat(dirfd(folder.get()), &info) == 0 && info.st_uid == geteuid();
  return is_own ? std::move(folder) : nullptr;
}

std::vector<std::string> names_in(const Folder& folder) {
  std::vector<std::string> names;
  if (folder) {
    rewinddir(folder.get());
    while (const dirent* entry = readdir(folder.get())) {
      const std::string name = entry->d_name;
      if (name != "." && name != "..") {
        names.push_back(name);
      }
    }
  }
  return names;
}

/// What is known of an entry itself, not of what it links to; nothing for one of another user.
std::optional<struct stat> own_entry(const Folder& folder, const std::string& name) {
  struct stat info = {};
  const bool is_own = fstatat(dirfd(folder.get()), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
                      info.st_uid == geteuid();
  return is_own ? std::make_optional(info) : std::nullopt;
}

/// A regular file of this user that has no other name.
std::optional<struct stat> own_file(const Folder& folder, const std::string& name) {
  const auto info = own_entry(folder, name);
  return info && S_ISREG(info->st_mode) && info->st_nlink == 1 ? info : std::nullopt;
}

bool unlink_in(const Folder& folder, const std::string& name, int flags = 0) {
  return unlinkat(dirfd(folder.get()), name.c_str(), flags) == 0;
}

/// Whether all that is in this part of a session folder is Open MPI's; `removes`: and was removed.
bool walk_session(const Folder& folder, int depth, bool removes) {
  for (const std::string& name : names_in(folder)) {
    const auto info = own_entry(folder, name);
    if (!info) {
      return false;
    }
    if (S_ISDIR(info->st_mode)) {
      const Folder inner = open_own_folder(folder, name);
      if (depth == 0 || !is_folder_of_session(name) || !inner ||
          !walk_session(inner, depth - 1, removes) ||
          (removes && !unlink_in(folder, name, AT_REMOVEDIR))) {
        return false;
      }
      continue;
    }
    const bool is_expected =
        (S_ISREG(info->st_mode) || S_ISSOCK(info->st_mode) || S_ISFIFO(info->st_mode)) &&
        info->st_nlink == 1 && is_file_of_session(name);
    if (!is_expected || (removes && !unlink_in(folder, name))) {
      return false;
    }
  }
  return true;
}

/// The numbers of all processes, also those that they have in namespaces of containers.
std::set<int> living(const std::string& processes) {
  std::set<int> found;
  for (const std::string& name : names_in(open_folder(processes))) {
    NameReader reader(name);
    const auto process = reader.number();
    if (!process || !reader.ended()) {
      continue;
    }
    found.insert(*process);
    std::ifstream status(processes + "/" + name + "/status");
    for (std::string line; std::getline(status, line);) {
      std::istringstream words(line);
      std::string key;
      if (words >> key && key == "NSpid:") {
        for (int number = 0; words >> number;) {
          found.insert(number);
        }
      }
    }
  }
  return found;
}

/// Paths of the files that processes map, and "DEVICE INODE" of each.
std::set<std::string> all_mapped(const std::string& processes) {
  std::set<std::string> files;
  for (const std::string& process : names_in(open_folder(processes))) {
    if (process.find_first_not_of(digits) != std::string::npos) {
      continue;
    }
    std::ifstream maps(processes + "/" + process + "/maps");
    for (std::string line; std::getline(maps, line);) {
      std::istringstream words(line);
      std::string range, rights, offset, device, inode;
      words >> range >> rights >> offset >> device >> inode;
      files.insert(device + " " + inode);
      if (const size_t slash = line.find('/'); slash != std::string::npos) {
        files.insert(line.substr(slash));
      }
    }
  }
  return files;
}

/// As /proc/PID/maps has them: "00:1a 35".
std::string device_and_inode(const struct stat& info) {
  std::array<char, 64> text = {};
  std::snprintf(text.data(), text.size(), "%02x:%02x %llu", major(info.st_dev), minor(info.st_dev),
                static_cast<unsigned long long>(info.st_ino));
  return text.data();
}

class Cleaner {
 public:
  Cleaner(const LeftoverPlaces& places, bool removes) : places_(places), removes_(removes) {}

  std::vector<std::string> clean() {
    if (sees_all_processes(places_)) {
      clean_shared_memory();
      clean_sessions();
    }
    return found_;
  }

 private:
  void clean_shared_memory() {
    const Folder folder = open_folder(places_.shared_memory);
    std::vector<std::string> segments;
    const std::vector<std::string> names = names_in(folder);
    living_ = living(places_.processes);
    for (const std::string& name : names) {
      if (const auto process = process_in_file(name)) {
        if (own_file(folder, name) && is_dead(*process)) {
          take(places_.shared_memory, name, !removes_ || unlink_in(folder, name));
        }
      } else if (is_segment(name)) {
        segments.push_back(name);
      }
    }
    const std::set<std::string> mapped =
        segments.empty() ? std::set<std::string>() : all_mapped(places_.processes);
    for (const std::string& name : segments) {
      const auto info = own_file(folder, name);
      if (info && std::time(nullptr) - info->st_mtime >= places_.min_age_seconds &&
          mapped.count(places_.shared_memory + "/" + name) == 0 &&
          mapped.count(device_and_inode(*info)) == 0) {
        take(places_.shared_memory, name, !removes_ || unlink_in(folder, name));
      }
    }
  }

  void clean_sessions() {
    const std::string name_of_all = "ompi." + host_and_user();
    const Folder sessions = open_own_folder(open_folder(places_.temporary), name_of_all);
    const std::vector<std::string> names = names_in(sessions);
    living_ = living(places_.processes);
    for (const std::string& name : names) {
      const auto process = process_in_session(name);
      if (!process || !is_dead(*process)) {
        continue;
      }
      const Folder session = open_own_folder(sessions, name);
      if (session && walk_session(session, session_depth, /*removes=*/false)) {
        take(places_.temporary + "/" + name_of_all, name,
             !removes_ || (walk_session(session, session_depth, /*removes=*/true) &&
                           unlink_in(sessions, name, AT_REMOVEDIR)));
      }
    }
  }

  bool is_dead(int process) const {
    return process > 0 && !living_.empty() && living_.count(process) == 0;
  }

  void take(const std::string& folder, const std::string& name, bool is_done) {
    if (is_done) {
      found_.push_back(folder + "/" + name);
    }
  }

  const LeftoverPlaces& places_;
  const bool removes_;
  std::set<int> living_;  // seen after the names: a process may begin at any time
  std::vector<std::string> found_;
};

}  // namespace

LeftoverPlaces leftover_places() {
  LeftoverPlaces places;
  const char* temporary = std::getenv("TMPDIR");
  places.temporary = temporary != nullptr && *temporary != '\0' ? temporary : "/tmp";
  return places;
}

bool sees_all_processes(const LeftoverPlaces& places) {
  std::array<char, 64> name = {};
  const std::string link = places.processes + "/self/ns/pid";
  return readlink(link.c_str(), name.data(), name.size() - 1) > 0 &&
         name.data() == std::string_view(first_namespace);
}

std::vector<std::string> find_leftovers(const LeftoverPlaces& places) {
  return Cleaner(places, /*removes=*/false).clean();
}

std::vector<std::string> remove_leftovers(const LeftoverPlaces& places) {
  return Cleaner(places, /*removes=*/true).clean();
}

}  // namespace lockstep::launcher
