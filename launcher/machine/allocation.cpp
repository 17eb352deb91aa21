#include "machine/allocation.h"

#include <cstdlib>
#include <fstream>
#include <initializer_list>
#include <set>
#include <sstream>

namespace lockstep::launcher {
namespace {

std::string text_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text == nullptr ? "" : text;
}

int number_in(std::initializer_list<const char*> variables) {
  for (const char* variable : variables) {
    if (const std::string text = text_in(variable); !text.empty()) {
      return std::atoi(text.c_str());
    }
  }
  return 0;
}

int at_least_one(int number) {
  return number > 0 ? number : 1;
}

/// PBS: a line for each slot.
Allocation of_node_file(const std::string& name, const std::string& path) {
  Allocation allocation{name};
  std::ifstream file(path);
  std::set<std::string> hosts;
  for (std::string host; std::getline(file, host);) {
    hosts.insert(host);
    ++allocation.ranks;
  }
  allocation.hosts = at_least_one(static_cast<int>(hosts.size()));
  return allocation;
}

/// LSF: "host slots host slots"; the first may be a launch node without ranks.
Allocation of_host_counts(const std::string& name, const std::string& text) {
  Allocation allocation{name};
  allocation.hosts = 0;
  std::istringstream words(text);
  std::string host;
  for (int slots = 0; words >> host >> slots;) {
    allocation.ranks += slots;
    ++allocation.hosts;
  }
  allocation.hosts = at_least_one(allocation.hosts);
  return allocation;
}

}  // namespace

std::optional<Allocation> find_allocation() {
  if (rank_in_environment() > 0 || ranks_in_environment() > 1) {
    return std::nullopt;
  }
  if (const std::string job = text_in("SLURM_JOB_ID"); !job.empty()) {
    return Allocation{"Slurm job " + job, number_in({"SLURM_NTASKS"}),
                      at_least_one(number_in({"SLURM_JOB_NUM_NODES", "SLURM_NNODES"}))};
  }
  if (const std::string job = text_in("PBS_JOBID"); !job.empty()) {
    return of_node_file("PBS job " + job, text_in("PBS_NODEFILE"));
  }
  if (const std::string job = text_in("LSB_JOBID"); !job.empty()) {
    return of_host_counts("LSF job " + job, text_in("LSB_MCPU_HOSTS"));
  }
  if (const std::string job = text_in("FLUX_JOB_ID"); !job.empty()) {
    return Allocation{"Flux job " + job, 0, at_least_one(number_in({"FLUX_JOB_NNODES"}))};
  }
  return std::nullopt;
}

int rank_in_environment() {
  return number_in({"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "PALS_RANKID",
                    "JSM_NAMESPACE_RANK", "FLUX_TASK_RANK"});
}

int ranks_in_environment() {
  return number_in({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "JSM_NAMESPACE_SIZE", "FLUX_JOB_SIZE"});
}

}  // namespace lockstep::launcher
