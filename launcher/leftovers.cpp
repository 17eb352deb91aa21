#include "leftovers.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>

namespace lockstep::launcher {
namespace {

namespace fs = std::filesystem;

bool begins_with(const std::string& text, const std::string& beginning) {
  return text.rfind(beginning, 0) == 0;
}

bool is_ours(const fs::path& path) {
  struct stat info = {};
  return lstat(path.c_str(), &info) == 0 && info.st_uid == geteuid();
}

/// The number after `prefix` in a name; 0: there is none.
int number_after(const std::string& name, const std::string& prefix) {
  return begins_with(name, prefix) ? std::atoi(name.c_str() + prefix.size()) : 0;
}

std::vector<fs::path> entries(const std::string& folder) {
  std::error_code error;
  std::vector<fs::path> found;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    found.push_back(entry->path());
  }
  return found;
}

/// "HOST.UID", as Open MPI names its files.
std::string host_and_user() {
  std::array<char, 256> host = {};
  gethostname(host.data(), host.size() - 1);
  return std::string(host.data()) + "." + std::to_string(geteuid());
}

class Cleaner {
 public:
  explicit Cleaner(const LeftoverPlaces& places) : places_(places) {}

  std::vector<std::string> clean() {
    for (const fs::path& session : entries(places_.temporary + "/ompi." + host_and_user())) {
      remove_if_dead(session, number_after(session.filename().string(), "pid."));
    }
    std::vector<fs::path> segments;
    for (const fs::path& file : entries(places_.shared_memory)) {
      const std::string name = file.filename().string();
      remove_if_dead(file, number_after(name, "lockstep-"));  // shared memory
      remove_if_dead(file, number_after(name, "lockstep_"));  // who has arrived
      if (begins_with(name, "vader_segment." + host_and_user() + ".") && is_old(file)) {
        segments.push_back(file);
      }
    }
    const std::set<std::string> mapped = segments.empty() ? std::set<std::string>() : all_mapped();
    for (const fs::path& file : segments) {
      if (mapped.count(file.string()) == 0) {
        remove(file);
      }
    }
    return removed_;
  }

 private:
  bool is_old(const fs::path& path) const {
    struct stat info = {};
    return lstat(path.c_str(), &info) == 0 &&
           std::time(nullptr) - info.st_mtime >= places_.min_age_seconds;
  }

  void remove_if_dead(const fs::path& path, int process) {
    if (process > 0 && !fs::exists(fs::path(places_.processes) / std::to_string(process))) {
      remove(path);
    }
  }

  void remove(const fs::path& path) {
    std::error_code error;
    if (is_ours(path) && fs::remove_all(path, error) > 0 && !error) {
      removed_.push_back(path.string());
    }
  }

  /// The files that processes map.
  std::set<std::string> all_mapped() const {
    std::set<std::string> files;
    for (const fs::path& process : entries(places_.processes)) {
      std::ifstream maps(process / "maps");
      for (std::string line; std::getline(maps, line);) {
        if (const size_t slash = line.find('/'); slash != std::string::npos) {
          files.insert(line.substr(slash));
        }
      }
    }
    return files;
  }

  const LeftoverPlaces& places_;
  std::vector<std::string> removed_;
};

}  // namespace

LeftoverPlaces leftover_places() {
  LeftoverPlaces places;
  const char* temporary = std::getenv("TMPDIR");
  places.temporary = temporary != nullptr && *temporary != '\0' ? temporary : "/tmp";
  return places;
}

std::vector<std::string> remove_leftovers(const LeftoverPlaces& places) {
  return Cleaner(places).clean();
}

}  // namespace lockstep::launcher
