#include "start/mpirun_command.h"

#include <lockstep/collectives/impl/cuda_driver.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <optional>

#include "machine/allocation.h"
#include "machine/machine.h"
#include "machine/visible_gpus.h"

extern char** environ;

namespace lockstep::launcher {
namespace {

// Bytes of Open MPI 4 and 5, with what lockstep has there for each rank.
constexpr uint64_t kRankSegment = 5 << 20, kRankSegment5 = 17 << 20;

std::string count_of(int count, const std::string& thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

/// The default number of ranks: the tasks of the allocation, else the devices that a Runtime would
/// use. A shell that a batch system has opened (srun --pty bash) is one task with all the GPUs.
int default_ranks(JobCommand& command, const std::optional<Allocation>& allocation) {
  const char* device = std::getenv("LOCKSTEP_DEVICE");
  const bool on_cpus = device != nullptr && std::string(device) == "cpu";
  const int tasks = allocation ? allocation->ranks : 0;
  const bool is_shell =
      tasks == 1 && allocation->hosts == 1 && !on_cpus && visible_gpus().count > 0;
  if (tasks > 0 && !is_shell) {
    command.notes.push_back(count_of(tasks, "rank") + ", as many as " + allocation->name +
                            " has tasks");
    return tasks;
  }
  if (on_cpus) {
    const int cores = physical_cores();
    command.notes.push_back(count_of(cores, "rank") +
                            ", one for each physical core (LOCKSTEP_DEVICE=cpu)");
    return cores;
  }
  const VisibleGpus& gpus = visible_gpus();
  if (gpus.count > 0) {
    command.notes.push_back(count_of(gpus.count, "rank") + ", one for each visible GPU");
    return gpus.count;
  }
  const int cores = physical_cores();
  const std::string why = gpus.problem.empty()
                              ? ")"
                              : ": " + gpus.problem + "); " + detail::advice_for_driver(gpus.error);
  command.notes.push_back(count_of(cores, "rank") +
                          ", one for each physical core (no GPU is visible" + why);
  return cores;
}

bool is_set_to_one(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && std::string(value) == "1";
}

bool root_is_refused() {
  return geteuid() == 0 && !(is_set_to_one("OMPI_ALLOW_RUN_AS_ROOT") &&
                             is_set_to_one("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"));
}

/// Remote ranks do not inherit this environment: passes the variables that they need by -x. A batch
/// system gives each node of its allocation a list of GPUs, which this node's must not replace.
void forward_environment(std::vector<std::string>& arguments) {
  const bool lists_differ = find_allocation().has_value();
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('='));
    if (lists_differ && (name == "CUDA_VISIBLE_DEVICES" || name == "NVIDIA_VISIBLE_DEVICES")) {
      continue;
    }
    for (const char* prefix :
         {"LOCKSTEP_",       "OMP_",      "KMP_",    "GOMP_",     "MKL_",           "OPENBLAS_",
          "DNNL_",           "ONEDNN_",   "ATEN_",   "MALLOC_",   "GLIBC_TUNABLES", "TORCH_",
          "PYTORCH_",        "CUDA_",     "CUBLAS_", "CUBLASLT_", "CUDNN_",         "NVIDIA_",
          "NCCL_",           "UCX_",      "UCC_",    "FI_",       "IBV_",           "RDMAV_",
          "MLX5_",           "PSM2_",     "PSM3_",   "HCOLL_",    "SHARP_",         "HWLOC_",
          "LD_LIBRARY_PATH", "LD_PRELOAD"}) {
      if (name.rfind(prefix, 0) == 0) {
        arguments.insert(arguments.end(), {"-x", name});
      }
    }
  }
}

/// Whether the user passes mpirun an argument that contains this text.
bool passes(const RunOptions& options, const std::string& part) {
  return std::any_of(
      options.mpi_arguments.begin(), options.mpi_arguments.end(),
      [&](const std::string& argument) { return argument.find(part) != std::string::npos; });
}

/// Whether the user has chosen by which components Open MPI sends messages.
bool chooses_components(const RunOptions& options) {
  for (const std::string framework : {"btl", "pml", "mtl"}) {
    if (std::getenv(("OMPI_MCA_" + framework).c_str()) != nullptr || passes(options, framework)) {
      return true;
    }
  }
  return false;
}

/// Whether Open MPI's segments fit, one for each rank.
bool shared_memory_has_room(int ranks, int version) {
  struct statvfs room {};
  return statvfs("/dev/shm", &room) == 0 &&
         room.f_bavail * room.f_frsize >=
             static_cast<uint64_t>(ranks) * (version >= 5 ? kRankSegment5 : kRankSegment);
}

/// Ranks of one host need no network; by default they listen on all of its addresses.
void keep_to_this_host(const RunOptions& options, int version, JobCommand& command) {
  if (chooses_components(options)) {
    return;
  }
  auto& arguments = command.arguments;
  arguments.insert(arguments.end(), {"--mca", "pml", "ob1", "--mca", "btl"});
  if (shared_memory_has_room(command.ranks, version)) {
    arguments.emplace_back(version >= 5 ? "self,sm" : "self,vader");
    return;
  }
  arguments.insert(arguments.end(), {"self,tcp", "--mca", "btl_tcp_if_include", "lo"});
  command.notes.push_back("/dev/shm has no room for " + count_of(command.ranks, "rank") +
                          ": messages take the loopback device, which is slower");
}

void add_open_mpi_options(const RunOptions& options, int version,
                          const std::optional<Allocation>& allocation, JobCommand& command) {
  auto& arguments = command.arguments;
  if (root_is_refused()) {
    arguments.emplace_back("--allow-run-as-root");
    command.notes.emplace_back("running as root: added --allow-run-as-root");
  }
  const int tasks = allocation ? allocation->ranks : 0;
  const bool few_tasks = tasks > 0 && command.ranks > tasks;
  if (!command.remote && (few_tasks || command.ranks > physical_cores())) {
    arguments.emplace_back("--oversubscribe");
    command.notes.push_back(
        count_of(command.ranks, "rank") + " on " +
        (few_tasks ? count_of(tasks, "task") : count_of(physical_cores(), "core")) +
        ": added --oversubscribe");
  }
  if (!command.remote && version >= 4) {
    keep_to_this_host(options, version, command);
  }
  if (version >= 5 && !passes(options, "runtime-options")) {
    command.launcher_ends_ranks = true;
    arguments.insert(arguments.end(), {"--runtime-options", "error-nonzero-status=0"});
  }
  arguments.insert(arguments.end(), {"--bind-to", options.bind});
  if (!options.hostfile.empty()) {
    arguments.insert(arguments.end(), {"--hostfile", options.hostfile});
  }
  if (!options.hosts.empty()) {
    arguments.insert(arguments.end(), {"--host", options.hosts});
  }
  if (command.remote) {
    forward_environment(arguments);
  }
}

void add_hydra_options(const RunOptions& options, JobCommand& command) {
  auto& arguments = command.arguments;
  command.notes.emplace_back("mpirun is not Open MPI's: only -n, -f and -hosts are passed to it");
  if (!options.hostfile.empty()) {
    arguments.insert(arguments.end(), {"-f", options.hostfile});
  }
  if (!options.hosts.empty()) {
    arguments.insert(arguments.end(), {"-hosts", options.hosts});
  }
}

}  // namespace

int open_mpi_version(const std::string& version) {
  if (version.find("PRRTE") != std::string::npos) {  // prterun, which is the mpirun of version 5
    return 5;
  }
  for (const std::string name : {"Open MPI", "OpenRTE"}) {  // "mpirun (Open MPI) 4.1.4"
    if (const size_t at = version.find(name); at != std::string::npos) {
      const size_t number = version.find_first_of("0123456789", at);
      return number == std::string::npos ? 1 : std::max(1, std::atoi(&version[number]));
    }
  }
  return 0;
}

JobCommand job_command(const RunOptions& options, const std::string& version) {
  JobCommand command;
  const auto allocation = options.has_hosts() ? std::nullopt : find_allocation();
  command.remote = options.has_hosts() || (allocation && allocation->hosts > 1);
  command.ranks = options.ranks > 0 ? options.ranks : default_ranks(command, allocation);
  if (!command.uses_mpirun()) {
    command.arguments = options.program;
    command.notes.emplace_back("one rank: started without mpirun");
    return command;
  }
  auto& arguments = command.arguments;
  arguments = {options.mpirun, "-n", std::to_string(command.ranks)};
  if (const int open_mpi = open_mpi_version(version); open_mpi > 0) {
    add_open_mpi_options(options, open_mpi, allocation, command);
  } else {
    add_hydra_options(options, command);
  }
  arguments.insert(arguments.end(), options.mpi_arguments.begin(), options.mpi_arguments.end());
  arguments.insert(arguments.end(), {own_program(), "exec-rank", "--"});
  arguments.insert(arguments.end(), options.program.begin(), options.program.end());
  return command;
}

}  // namespace lockstep::launcher
