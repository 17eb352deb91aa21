#include "clean/leftovers.h"

#include <fcntl.h>
#include <lockstep/collectives/impl/descriptor.h>
#include <lockstep/collectives/impl/process_mark.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <set>
#include <sstream>

#include "clean/leftover_names.h"
#include "clean/own_files.h"
#include "machine/machine.h"

namespace lockstep::launcher {
namespace {

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
    clean_shared_memory();
    clean_sessions();
    return found_;
  }

 private:
  struct Notes {
    std::vector<JobNote> of_dead;
    std::set<int> others;  // mpiruns that live or cannot be seen
  };

  bool is_dead(const detail::ProcessMark& mark) const {
    return life_of(mark, places_.processes) == detail::Life::dead;
  }

  Notes notes_in(const Folder& folder, const std::vector<std::string>& names) const {
    Notes notes;
    for (const std::string& name : names) {
      const auto note = note_in(name);
      const bool is_here = note && note->host == host_name();
      if (is_here && own_file(folder, name) && is_dead(note->mpirun)) {
        notes.of_dead.push_back(*note);
      } else if (note) {
        notes.others.insert(note->mpirun.process);
      }
    }
    return notes;
  }

  void clean_shared_memory() {
    const Folder folder = open_folder(places_.shared_memory);
    const std::vector<std::string> names = names_in(folder);
    for (const std::string& name : names) {
      const auto mark = mark_in_file(name);
      if (mark && own_file(folder, name) && is_dead(*mark)) {
        take(places_.shared_memory, name, !removes_ || unlink_in(folder, name));
      }
    }
    const Notes notes = notes_in(folder, names);
    if (notes.of_dead.empty()) {
      return;
    }
    const std::set<std::string> mapped = all_mapped(places_.processes);
    for (const JobNote& note : notes.of_dead) {
      bool keeps_note = note.job.empty();  // not made here
      for (const std::string& name : names) {
        if (!note.job.empty() && job_in_segment(name) == note.job) {
          keeps_note = !clean_segment(folder, name, mapped) || keeps_note;
        }
      }
      drop(folder, note, keeps_note);
    }
  }

  /// Whether it is removed.
  bool clean_segment(const Folder& folder, const std::string& name,
                     const std::set<std::string>& mapped) {
    const auto info = own_file(folder, name);
    const bool is_left = info && std::time(nullptr) - info->st_mtime >= places_.min_age_seconds &&
                         mapped.count(places_.shared_memory + "/" + name) == 0 &&
                         mapped.count(device_and_inode(*info)) == 0;
    return is_left && take(places_.shared_memory, name, !removes_ || unlink_in(folder, name));
  }

  void clean_sessions() {
    const Folder temporary = open_folder(places_.temporary);
    const Notes notes = notes_in(temporary, names_in(temporary));
    for (const JobNote& note : notes.of_dead) {
      const int process = note.mpirun.process;
      // The number may be that of another mpirun by now, or of one in a container.
      const bool is_its_own = note.job.empty() && notes.others.count(process) == 0 &&
                              !detail::mark_of(process, places_.processes);
      bool keeps_note = !note.job.empty();  // not made here
      for (const auto& [parent, name] : sessions_of(process)) {
        const std::string path = places_.temporary + (parent.empty() ? "" : "/" + parent);
        const Folder folder =
            parent.empty() ? open_folder(path) : open_own_folder(temporary, parent);
        const std::vector<std::string> names = names_in(folder);
        const bool is_there = std::find(names.begin(), names.end(), name) != names.end();
        const bool is_removed = is_there && is_its_own && clean_session(folder, path, name);
        keeps_note = keeps_note || (is_there && !is_removed);
      }
      drop(temporary, note, keeps_note);
    }
  }

  /// Whether it is removed. `path`: of the folder.
  bool clean_session(const Folder& folder, const std::string& path, const std::string& name) {
    const Folder session = open_own_folder(folder, name);
    return session && walk_session(session, session_depth, /*removes=*/false) &&
           take(path, name,
                !removes_ || (walk_session(session, session_depth, /*removes=*/true) &&
                              unlink_in(folder, name, AT_REMOVEDIR)));
  }

  bool take(const std::string& folder, const std::string& name, bool is_done) {
    if (is_done) {
      found_.push_back(folder + "/" + name);
    }
    return is_done;
  }

  void drop(const Folder& folder, const JobNote& note, bool keeps) const {
    if (removes_ && !keeps) {
      unlink_in(folder, note.name());
    }
  }

  const LeftoverPlaces& places_;
  const bool removes_;
  std::vector<std::string> found_;
};

}  // namespace

LeftoverPlaces leftover_places() {
  LeftoverPlaces places;
  const char* temporary = std::getenv("TMPDIR");
  places.temporary = temporary != nullptr && *temporary != '\0' ? temporary : "/tmp";
  return places;
}

void note_job(const LeftoverPlaces& places, int mpirun, const std::string& job) {
  const auto mark = detail::mark_of(mpirun, places.processes);
  const std::string& folder = job.empty() ? places.temporary : places.shared_memory;
  if (mark && (job.empty() || is_job(job))) {
    const std::string path = folder + "/" + JobNote{*mark, job, host_name()}.name();
    const int flags = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
    const detail::Descriptor file(open(path.c_str(), flags, 0600));
  }
}

std::vector<std::string> find_leftovers(const LeftoverPlaces& places) {
  return Cleaner(places, /*removes=*/false).clean();
}

std::vector<std::string> remove_leftovers(const LeftoverPlaces& places) {
  return Cleaner(places, /*removes=*/true).clean();
}

}  // namespace lockstep::launcher
