#include "doctor/machine_facts.h"

#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>

#include "clean/leftover_names.h"
#include "machine/machine.h"

namespace lockstep::doctor {
namespace {

namespace fs = std::filesystem;

bool exists(const std::string& path) {
  return access(path.c_str(), F_OK) == 0;
}

std::vector<std::string> names_in(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (auto entry = fs::directory_iterator(folder, error);
       !error && entry != fs::directory_iterator(); entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool starts_with(const std::string& text, const std::string& part) {
  return text.rfind(part, 0) == 0;
}

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

std::string first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

int64_t limit(__rlimit_resource resource) {
  rlimit limits{};
  getrlimit(resource, &limits);
  return limits.rlim_cur == RLIM_INFINITY ? -1 : static_cast<int64_t>(limits.rlim_cur);
}

void read_processors(RankFacts& facts, const MachineFolders& folders) {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  sched_getaffinity(0, sizeof allowed, &allowed);
  std::set<int> nodes;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) {
      continue;
    }
    facts.cpus.push_back(cpu);
    for (const std::string& name :
         names_in(folders.system + "/devices/system/cpu/cpu" + std::to_string(cpu))) {
      if (starts_with(name, "node") && is_number(name.substr(4))) {
        nodes.insert(std::stoi(name.substr(4)));
      }
    }
  }
  facts.numa.assign(nodes.begin(), nodes.end());
  facts.cores = launcher::physical_cores();
}

void read_fabric(RankFacts& facts, const MachineFolders& folders) {
  facts.peer_memory = exists(folders.system + "/module/nvidia_peermem");
  const std::string adapters = folders.system + "/class/infiniband";
  for (const std::string& adapter : names_in(adapters)) {
    const std::string ports = adapters + "/" + adapter + "/ports";
    for (const std::string& port : names_in(ports)) {
      const std::string state = first_line(ports + "/" + port + "/state");
      facts.fabric_ports += state.find("ACTIVE") != std::string::npos ? 1 : 0;
    }
  }
}

/// The files of `folder` that a process maps.
std::set<std::string> mapped_files(const MachineFolders& folders) {
  std::set<std::string> mapped;
  for (const std::string& process : names_in(folders.processes)) {
    if (!is_number(process)) {
      continue;
    }
    std::ifstream maps(folders.processes + "/" + process + "/maps");
    for (std::string line; std::getline(maps, line);) {
      const size_t at = line.find(folders.shared_memory + "/");
      if (at != std::string::npos) {
        mapped.insert(line.substr(at));
      }
    }
  }
  return mapped;
}

/// Whether it is a file of lockstep whose process is known to be dead.
bool is_of_dead_process(const std::string& name, const MachineFolders& folders) {
  auto mark = launcher::mark_in_file(name);
  if (const auto note = launcher::note_in(name)) {
    mark = note->mpirun;
  }
  return mark && life_of(*mark, folders.processes) == detail::Life::dead;
}

}  // namespace

std::vector<Leftover> find_leftovers(const MachineFolders& folders) {
  std::vector<Leftover> found;
  std::vector<Leftover> candidates;
  for (const std::string& name : names_in(folders.shared_memory)) {
    const std::string path = folders.shared_memory + "/" + name;
    struct stat info {};
    const bool known = starts_with(name, "vader_segment.") || starts_with(name, "sm_segment.") ||
                       starts_with(name, "nccl-") || is_of_dead_process(name, folders);
    if (known && stat(path.c_str(), &info) == 0 && info.st_uid == geteuid() &&
        static_cast<double>(std::time(nullptr) - info.st_mtime) >= folders.youngest_leftover) {
      candidates.push_back({path, static_cast<int64_t>(info.st_size)});
    }
  }
  if (!candidates.empty()) {
    const std::set<std::string> mapped = mapped_files(folders);
    for (const Leftover& candidate : candidates) {
      // A job that ended meanwhile has removed its files.
      if (mapped.count(candidate.path) == 0 && exists(candidate.path)) {
        found.push_back(candidate);
      }
    }
  }
  const std::string own = "." + std::to_string(geteuid());
  for (const std::string& sessions : names_in(folders.temporary)) {
    const std::string folder = folders.temporary + "/" + sessions;
    struct stat info {};
    if (const auto mpirun = launcher::mpirun_of_session(sessions);
        mpirun && stat(folder.c_str(), &info) == 0 && info.st_uid == geteuid() &&
        !exists(folders.processes + "/" + std::to_string(*mpirun))) {
      found.push_back({folder, 0});
    }
    if (!starts_with(sessions, "ompi.") || sessions.size() < own.size() ||
        sessions.compare(sessions.size() - own.size(), own.size(), own) != 0) {
      continue;
    }
    for (const std::string& session : names_in(folder)) {
      const std::string path = folder + "/" + session;
      if (starts_with(session, "pid.") && is_number(session.substr(4)) &&
          !exists(folders.processes + "/" + session.substr(4)) && exists(path)) {
        found.push_back({path, 0});
      }
    }
  }
  return found;
}

int numa_of_device(const std::string& bus, const MachineFolders& folders) {
  const std::string text = first_line(folders.system + "/bus/pci/devices/" + bus + "/numa_node");
  return is_number(text) ? std::stoi(text) : -1;
}

void read_machine(RankFacts& facts, const MachineFolders& folders) {
  facts.host = launcher::host_name();
  read_processors(facts, folders);
  read_fabric(facts, folders);
  struct statvfs room {};
  if (statvfs(folders.shared_memory.c_str(), &room) == 0) {
    facts.shm_bytes = static_cast<int64_t>(room.f_blocks) * static_cast<int64_t>(room.f_frsize);
    facts.shm_free = static_cast<int64_t>(room.f_bavail) * static_cast<int64_t>(room.f_frsize);
  }
  std::ifstream memory(folders.processes + "/meminfo");
  for (std::string line; std::getline(memory, line);) {
    if (starts_with(line, "MemAvailable:")) {
      facts.memory_available = std::atoll(line.c_str() + 13) * 1024;
    }
  }
  facts.leftovers = find_leftovers(folders);
  facts.memlock = limit(RLIMIT_MEMLOCK);
  facts.open_files = limit(RLIMIT_NOFILE);
  facts.processes = limit(RLIMIT_NPROC);
}

}  // namespace lockstep::doctor
