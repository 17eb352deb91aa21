#include "doctor/examination.h"

#include <ATen/ops/ones.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/seconds_since.h>
#include <lockstep/collectives/mpi_session.h>
#include <lockstep/runtime/runtime.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <optional>
#include <sstream>

#include "doctor/collective_checks.h"
#include "doctor/fact_checks.h"
#include "doctor/folder_probe.h"
#include "doctor/kernel_checks.h"
#include "doctor/library_facts.h"
#include "doctor/machine_facts.h"
#include "doctor/rank_findings.h"
#include "doctor/report.h"
#include "doctor/training_checks.h"

namespace lockstep::doctor {
namespace {

constexpr int64_t kElements = 1 << 20;

using Clock = std::chrono::steady_clock;

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

/// The rank by environment variables, before MPI is initialised.
int rank_of_environment() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const char* text = std::getenv(name)) {
      return std::atoi(text);
    }
  }
  return 0;
}

/// What follows `sign` in the line of the Runtime's summary that begins with `name`.
std::string in_summary(const Runtime& runtime, const char* name, const std::string& sign) {
  std::istringstream lines(runtime.summary());
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find(sign);
    if (line.rfind(name, 0) == 0 && at != std::string::npos) {
      return line.substr(at + sign.size());
    }
  }
  return "";
}

FolderFacts measure_folder(const std::string& folder, const Runtime& runtime) {
  const FolderProbe probe(folder, int64_t{32} << 20);
  FolderFacts facts = probe.facts();
  const std::string of_rank_0 = runtime.control().all_gather_bytes(probe.path()).front();
  facts.sees_rank_0 = std::filesystem::exists(of_rank_0);
  runtime.control().barrier().wait();
  return facts;
}

Finding stopped_rank(const ExaminationOptions& options) {
  if (options.stopped.empty()) {
    return {Status::skipped, "lockstep doctor -n 2, without a launcher around it, stops a rank",
            ""};
  }
  const std::string text = content_of(options.stopped);
  if (text.empty()) {
    return {Status::warning, "the job of two ranks for this check gave no report",
            "start lockstep doctor again when the machine is quiet"};
  }
  if (text.find("rank 1") == std::string::npos) {
    return {Status::failure, "a rank that had stopped was not named: " + text,
            "report it with the file of --json"};
  }
  return {Status::ok, "rank 1 stopped, and rank 0 named it at its deadline", ""};
}

/// This rank's part of all checks.
class Examination {
 public:
  Examination(const ExaminationOptions& options, RankFacts facts)
      : options_(options), facts_(std::move(facts)), report_(std::cout) {}

  /// The facts of this rank alone, and why there is no Runtime.
  int without_runtime(const Error& error) {
    if (rank_of_environment() == 0) {
      report_.title("lockstep doctor " LOCKSTEP_VERSION);
      look_at({facts_});
      report_.add({"start",
                   {Status::failure, error.what(),
                    "the message says what to do; a row above may name the cause"}});
      finish({facts_});
    }
    return report_.exit_code();
  }

  int with(Runtime& runtime, double start_seconds) {
    facts_.start_seconds = start_seconds;
    read_world(facts_, runtime);
    facts_.device_reason = in_summary(runtime, "device", ": ");
    facts_.without_nccl = in_summary(runtime, "NCCL", "because ");
    if (!options_.snapshots.empty()) {
      facts_.snapshots = measure_folder(options_.snapshots, runtime);
    }
    std::vector<RankFacts> ranks;
    for (const std::string& text : runtime.control().all_gather_bytes(to_json(facts_))) {
      ranks.push_back(from_json(text));
    }
    prints_ = runtime.is_main();
    if (prints_) {
      report_.title(c10::str("lockstep doctor " LOCKSTEP_VERSION ": ", runtime.size(),
                             runtime.size() == 1 ? " rank on " : " ranks on ",
                             runtime.device().is_cuda() ? "CUDA devices" : "CPUs"));
      look_at(ranks);
    }
    try {
      act(runtime, ranks);
    } catch (const CommunicationError& error) {
      add("ranks",
          {Status::failure, error.what(), "a rank was lost, or is too slow: see its output"});
    }
    if (prints_) {
      finish(ranks);
    }
    return prints_ ? report_.exit_code() : 0;
  }

 private:
  void add(const std::string& name, const Finding& finding) {
    if (prints_) {
      report_.add({name, finding});
    }
  }

  void look_at(const std::vector<RankFacts>& ranks) {
    for (const FactCheck& check : fact_checks()) {
      report_.add({check.name, finding_of([&] { return check.run(ranks); })});
    }
  }

  void act(Runtime& runtime, const std::vector<RankFacts>& ranks) {
    const Communicator& world = runtime.communicator();
    const Communicator& control = runtime.control();
    const c10::Device device = runtime.device();
    const auto local = [&](const std::string& name, const std::function<Finding()>& check) {
      add(name, worst_of(control, finding_of(check)));
    };
    const auto together = [&](const std::string& name, const std::function<Finding()>& check) {
      local(name, [&] { return or_leave(check); });
    };
    const int64_t elements = options_.is_small ? kElements / 64 : kElements;
    const Finding not_measured{Status::skipped, "--small", ""};
    local("update kernels", [&] { return check_kernels(update_kernels(elements), device); });
    local("cast kernels", [&] { return check_kernels(cast_kernels(elements), device); });
    local("step kernels", [&] { return check_kernels(step_kernels(elements), device); });
    local("memory speed", [&] {
      if (options_.is_small) {
        return not_measured;
      }
      return judge_speeds(measure_speeds(device, (device.is_cpu() ? 8 : 64) * kElements));
    });

    bool large = true;
    for (const RankFacts& rank : ranks) {
      large = large && rank.memory_available > (int64_t{1} << 30) * rank.local_size;
    }
    together("communicators", [&] { return check_start_up(world, facts_.start_seconds); });
    const std::vector<std::pair<const char*, int64_t>> sizes{{"all-reduce 16 B", 16},
                                                             {"all-reduce 25 MB", 25'000'000},
                                                             {"all-reduce 256 MB", 256'000'000}};
    for (const auto& [name, bytes] : sizes) {
      together(name, [&, size = bytes]() -> Finding {
        if (size > 1024 && options_.is_small) {
          return not_measured;
        }
        if (size > 100'000'000 && !large) {
          return {Status::skipped, "needs 1 GiB of free host memory for each rank", ""};
        }
        return judge_all_reduce(all_reduce(world, control, device, size));
      });
    }
    together("training", [&] { return check_equal_weights(runtime); });
    together("transports", [&] { return check_transports(runtime); });
    together("captured steps", [&] { return check_captured_steps(runtime); });
    together("overflow", [&] { return check_overflow(runtime); });
    together("exception", [&] { return check_exception(runtime); });
    together("waiting peers", [&] { return check_waiting_peers(runtime); });
    add("stopped rank", stopped_rank(options_));
  }

  void finish(const std::vector<RankFacts>& ranks) {
    const double seconds = detail::seconds_since(begin_);
    report_.finish(seconds);
    if (!options_.json.empty()) {
      std::ofstream file(options_.json);
      file << report_.json(ranks, seconds) << std::flush;
      LOCKSTEP_CHECK(file.good(), "cannot write ", options_.json);
    }
  }

  Clock::time_point begin_ = Clock::now();
  const ExaminationOptions& options_;
  RankFacts facts_;
  Report report_;
  bool prints_ = true;
};

int examined(int argc, char** argv, const ExaminationOptions& options) {
  RankFacts facts;
  read_machine(facts);
  const auto begin = Clock::now();
  std::optional<Runtime> runtime;
  try {
    read_libraries(facts);
    runtime.emplace(argc, argv, RuntimeOptions().timeout(std::chrono::seconds(60)));
  } catch (const Error& error) {
    return Examination(options, facts).without_runtime(error);
  }
  return Examination(options, facts).with(*runtime, detail::seconds_since(begin));
}

}  // namespace

int examine(int argc, char** argv, const ExaminationOptions& options) {
  const int code = examined(argc, argv, options);
  if (options.result_file.empty()) {
    return code;
  }
  if (rank_of_environment() == 0) {
    std::ofstream(options.result_file) << code << "\n";
  }
  return 0;
}

int stop_a_rank(const std::string& file) {
  CommunicatorOptions options;
  options.timeout = std::chrono::seconds(4);
  const MpiSession session(options);
  const Communicator world = session.world();
  world.barrier().wait();
  if (world.rank() == 1) {
    std::raise(SIGSTOP);
  }
  try {
    world.all_reduce(at::ones({1})).wait();
  } catch (const CommunicationError& error) {
    if (world.rank() == 0) {
      std::ofstream(file) << error.what() << "\n";
    }
    return static_cast<int>(error.code());
  }
  return 0;
}

}  // namespace lockstep::doctor
