#include "clean/leftovers.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

#include "clean/leftover_names.h"
#include "clean/own_files.h"

namespace lockstep::launcher {
namespace {

// Inode of the initial PID namespace, whose /proc shows all processes (PROC_PID_INIT_INO).
constexpr const char* first_namespace = "pid:[4026531836]";
constexpr int session_depth = 2;  // pid.N/JOB/RANK

/// Whether all files in this part of a session folder are Open MPI's (`removes`: and were removed).
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

/// The numbers of all processes, including their numbers in namespaces of containers.
std::set<int> living(const std::string& processes) {
  std::set<int> found;
  for (const std::string& name : names_in(open_folder(processes))) {
    const auto process = number_in(name);
    if (!process) {
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
    if (!number_in(process)) {
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
  std::set<int> living_;  // read after the names: a process may start at any time
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
