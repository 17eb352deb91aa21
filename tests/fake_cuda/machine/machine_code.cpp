#include "machine_code.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <unordered_map>

extern char** environ;

namespace fake_cuda {
namespace {

struct Index {
  std::unordered_map<std::string, std::string> file_of_kernel;
  std::vector<std::string> files;
};

Index read_index() {
  Index index;
  std::set<std::string> files;
  std::istringstream folders(setting("FAKE_CUDA_CODE", "."));
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::ifstream lines(folder + "/index.txt");
    if (!lines) {
      throw DeviceFault(cudaErrorNoKernelImageForDevice,
                        "FAKE_CUDA_CODE: " + folder + "/index.txt is missing");
    }
    for (std::string kernel, file; lines >> kernel >> file;) {
      file = folder + "/" + file;
      index.file_of_kernel.emplace(kernel, file);
      files.insert(file);
    }
  }
  index.files.assign(files.begin(), files.end());
  return index;
}

const Index& the_index() {
  static const Index* index = new Index(read_index());
  return *index;
}

/// The environment without LD_PRELOAD: a tool must not load the fake libraries.
std::vector<char*> tool_environment() {
  std::vector<char*> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (strncmp(*variable, "LD_PRELOAD=", 11) != 0) {
      variables.push_back(*variable);
    }
  }
  variables.push_back(nullptr);
  return variables;
}

/// Executes cuobjdump in a folder; its output goes to a file there. Throws DeviceFault if it fails.
void run_cuobjdump(const std::string& folder, const std::vector<std::string>& arguments,
                   const std::string& output) {
  const std::string tool = setting("CUOBJDUMP", "cuobjdump");
  std::vector<char*> words = {const_cast<char*>(tool.c_str())};
  for (const std::string& argument : arguments) {
    words.push_back(const_cast<char*>(argument.c_str()));
  }
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addchdir_np(&actions, folder.c_str());
  posix_spawn_file_actions_addopen(&actions, 1, output.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  int status = -1;
  const int failed = posix_spawnp(&child, tool.c_str(), &actions, nullptr, words.data(),
                                  tool_environment().data());
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0 || waitpid(child, &status, 0) != child || status != 0) {
    throw DeviceFault(cudaErrorNoKernelImageForDevice,
                      tool + " (set CUOBJDUMP) failed for " + arguments.back());
  }
}

std::string content_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::string cache_folder() {
  const std::string folder = setting("FAKE_CUDA_CACHE", "/tmp/fake_cuda_cache");
  std::filesystem::create_directories(folder);
  return folder;
}

/// FNV-1a; the names of cached files.
std::string hash_of(std::initializer_list<std::string_view> texts) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const std::string_view text : texts) {
    for (const char c : text) {
      hash = (hash ^ uint8_t(c)) * 0x100000001b3;
    }
    hash = (hash ^ 0x100) * 0x100000001b3;
  }
  char name[20];
  snprintf(name, sizeof name, "%016llx", static_cast<unsigned long long>(hash));
  return name;
}

/// Several ranks may make the same file at once: each in a place of its own, then a rename.
class Workplace {
 public:
  Workplace() : folder_(cache_folder() + "/work.XXXXXX") {
    if (mkdtemp(folder_.data()) == nullptr) {
      throw DeviceFault(cudaErrorNoKernelImageForDevice, "cannot write " + folder_);
    }
  }
  ~Workplace() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  const std::string& folder() const { return folder_; }

 private:
  std::string folder_;
};

/// The path of the cubin in a fatbin.
std::string extracted(const std::string& fatbin) {
  struct stat about = {};
  stat(fatbin.c_str(), &about);
  const std::string cubin =
      cache_folder() + "/" +
      hash_of({fatbin, std::to_string(about.st_size), std::to_string(about.st_mtime)}) + ".cubin";
  if (!std::filesystem::exists(cubin)) {
    const Workplace place;
    run_cuobjdump(place.folder(), {"-xelf", "all", std::filesystem::absolute(fatbin).string()},
                  "log");
    for (const auto& entry : std::filesystem::directory_iterator(place.folder())) {
      if (entry.path().extension() == ".cubin") {
        std::filesystem::rename(entry.path(), cubin);
        break;
      }
    }
  }
  return cubin;
}

}  // namespace

std::string file_of_kernel(const std::string& kernel) {
  const auto& files = the_index().file_of_kernel;
  const auto found = files.find(kernel);
  if (found == files.end()) {
    throw DeviceFault(cudaErrorNoKernelImageForDevice,
                      "no file in FAKE_CUDA_CODE has the kernel " + kernel);
  }
  return found->second;
}

const std::vector<std::string>& files_of_code() {
  return the_index().files;
}

const Cubin& cubin_in(const std::string& file) {
  static auto* cubins = new std::unordered_map<std::string, std::unique_ptr<Cubin>>;
  std::unique_ptr<Cubin>& cubin = (*cubins)[file];
  if (cubin == nullptr) {
    const bool is_fatbin = file.size() > 7 && file.compare(file.size() - 7, 7, ".fatbin") == 0;
    cubin = std::make_unique<Cubin>(is_fatbin ? extracted(file) : file);
  }
  return *cubin;
}

std::string disassembly_of(const std::string& kernel, const std::string& file,
                           std::string_view code) {
  const std::string cached = cache_folder() + "/" + hash_of({kernel, code}) + ".sass";
  if (!std::filesystem::exists(cached)) {
    const Workplace place;
    const std::string listing = place.folder() + "/listing";
    run_cuobjdump(place.folder(),
                  {"-sass", "-fun", kernel, std::filesystem::absolute(file).string()}, listing);
    std::filesystem::rename(listing, cached);
  }
  return content_of(cached);
}

}  // namespace fake_cuda
