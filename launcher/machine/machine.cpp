#include "machine/machine.h"

#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <utility>

namespace lockstep::launcher {
namespace {

int read_number(const std::string& path, int otherwise) {
  std::ifstream file(path);
  int value = otherwise;
  file >> value;
  return file ? value : otherwise;
}

bool can_execute(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(path.c_str(), X_OK) == 0;
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name = {};
  gethostname(name.data(), name.size() - 1);
  return name.data();
}

int physical_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) {
    return 1;
  }
  std::set<std::pair<int, int>> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) {
      const std::string folder = "/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/topology/";
      cores.emplace(read_number(folder + "physical_package_id", 0),
                    read_number(folder + "core_id", cpu));
    }
  }
  return std::max<int>(1, static_cast<int>(cores.size()));
}

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    return can_execute(name) ? name : "";
  }
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "/usr/bin:/bin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string candidate = (folder.empty() ? "." : folder) + "/" + name;
    if (can_execute(candidate)) {
      return candidate;
    }
  }
  return "";
}

std::string own_program() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

}  // namespace lockstep::launcher
