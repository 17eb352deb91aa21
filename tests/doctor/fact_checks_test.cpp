// Each fault that lockstep doctor must find is planted in the facts of one rank: the row, its
// status and its fix.
#include <doctor/fact_checks.h>
#include <doctor/rank_facts.h>
#include <doctor/report.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <sstream>

namespace lockstep::doctor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kMiB = 1 << 20;

/// Two ranks of one node with two GPUs, and nothing wrong.
std::vector<RankFacts> healthy() {
  std::vector<RankFacts> ranks(2);
  for (int k = 0; k < 2; ++k) {
    RankFacts& rank = ranks[static_cast<size_t>(k)];
    rank.rank = rank.local_rank = k;
    rank.size = rank.local_size = rank.launched = 2;
    rank.host = "node1";
    rank.compiler = "g++ 12.2 Release";
    rank.libtorch_built = rank.libtorch_loaded = "2.11.0";
    rank.libtorch_has_cuda = rank.has_kernels = rank.has_nccl = true;
    rank.cuda_runtime = rank.cuda_driver = 13000;
    rank.nccl_built = rank.nccl_loaded = 22809;
    rank.nccl_files = {"/venv/libnccl.so.2"};
    rank.mpi = "Open MPI v4.1.4";
    rank.thread_level = "MPI_THREAD_MULTIPLE";
    rank.instructions = "AVX512, AVX3";
    rank.gpus_present = 2;
    rank.device = "cuda:" + std::to_string(k);
    rank.device_uuid = "GPU-" + std::to_string(k);
    rank.transport = "nccl";
    rank.devices = {{0, "GPU-0", "0000:41:00.0", 0, 12}, {1, "GPU-1", "0000:81:00.0", 0, 12}};
    rank.fabric_ports = 1;
    rank.peer_memory = true;
    rank.cores = 16;
    rank.threads = 8;
    rank.cpus = {0, 1, 2, 3};
    rank.numa = {0};
    rank.shm_bytes = rank.shm_free = 8192 * kMiB;
    rank.open_files = 65536;
    rank.snapshots = {"runs", "", 900.0, 0.001, true};
  }
  return ranks;
}

Finding finding_of_row(const std::vector<RankFacts>& ranks, const std::string& name) {
  for (const FactCheck& check : fact_checks()) {
    if (check.name == name) {
      return check.run(ranks);
    }
  }
  ADD_FAILURE() << "no check " << name;
  return {};
}

struct Fault {
  const char* row;
  std::function<void(std::vector<RankFacts>&)> plant;
  Status status;
  const char* what;
  const char* fix;
};

const std::vector<Fault>& faults() {
  using Ranks = std::vector<RankFacts>;
  static const std::vector<Fault> all{
      {"NCCL", [](Ranks& r) { r[1].nccl_files.emplace_back("/opt/hpcx/libnccl.so.2"); },
       Status::failure,
       "rank 1 (node1) has loaded two copies of NCCL, /venv/libnccl.so.2 and /opt/",
       "LD_LIBRARY_PATH"},
      {"NCCL", [](Ranks& r) { r[1].nccl_loaded = 22203; }, Status::failure,
       "has loaded NCCL 2.22.3, lockstep was built with 2.28.9", "let LibTorch load the NCCL"},
      {"driver", [](Ranks& r) { r[0].cuda_driver = 12040; }, Status::failure,
       "supports CUDA 12.4 at most, LibTorch is built for 13.0", "install a newer driver"},
      {"driver", [](Ranks& r) { r[1].cuda_driver = -1; }, Status::failure,
       "rank 1 (node1) has 2 GPUs and no driver", "install NVIDIA's driver"},
      {"driver",
       [](Ranks& r) {
         r[1].no_device = "NVIDIA's driver reports error 802";
         r[1].no_device_fix = "start nvidia-fabricmanager";
       },
       Status::failure, "rank 1 (node1) has 2 GPUs and can use none: NVIDIA's driver reports error",
       "nvidia-fabricmanager"},
      {"NCCL",
       [](Ranks& r) {
         r[0].transport = r[1].transport = "staged";
         r[0].without_nccl = "ranks 0 and 1 use one GPU (0000:41:00.0)";
       },
       Status::warning, "not in use, device tensors go through the host: ranks 0 and 1 use one GPU",
       "LOCKSTEP_TRANSPORT=staged"},
      {"devices", [](Ranks& r) { r[1].devices[1].no_code = "its compute capability is 7.0"; },
       Status::failure, "rank 1 (node1) sees device 1, and its compute capability is 7.0",
       "LOCKSTEP_DEVICE=cpu"},
      {"build", [](Ranks& r) { r[0].has_kernels = false; }, Status::failure, "there is a GPU",
       "-DLOCKSTEP_CUDA=ON"},
      {"build", [](Ranks& r) { r[1].libtorch_loaded = "2.9.0"; }, Status::failure,
       "rank 1 (node1) has loaded LibTorch 2.9.0", "LD_LIBRARY_PATH"},
      {"instruction set", [](Ranks& r) { r[1].instructions = "AVX2, AVX2"; }, Status::warning,
       "rank 1 (node1) runs AVX2", "ATEN_CPU_CAPABILITY=avx2"},
      {"MPI", [](Ranks& r) { r[1].thread_level = "MPI_THREAD_FUNNELED"; }, Status::failure,
       "MPI_THREAD_FUNNELED on rank 1", "MPI_Init_thread"},
      {"MPI", [](Ranks& r) { r[1].mpi = "Open MPI v5.0.3"; }, Status::failure,
       "has Open MPI v5.0.3", "the same MPI library on all nodes"},
      {"ranks", [](Ranks& r) { r[0].launched = 4; }, Status::failure,
       "the launcher started 4 ranks, MPI sees 2", "start the program with the mpirun of"},
      {"ranks",
       [](Ranks& r) {
         for (RankFacts& rank : r) {
           rank.devices.resize(8);
         }
       },
       Status::warning, "2 on node1, which has 8 GPUs", "lockstep doctor -n 8"},
      {"devices", [](Ranks& r) { r[1].device_uuid = "GPU-0"; }, Status::warning,
       "ranks 0 and 1 share GPU-0", "CUDA_VISIBLE_DEVICES"},
      {"devices",
       [](Ranks& r) {
         r[0].device = r[1].device = "cpu";
         r[0].device_reason = "this LibTorch is for CPUs";
       },
       Status::warning, "the ranks are on CPUs: this LibTorch is for CPUs", "LOCKSTEP_DEVICE"},
      {"links", [](Ranks& r) { r[0].devices[1].nvlinks = 8; }, Status::warning, "8 NVLinks",
       "nvidia-smi nvlink -s"},
      {"GPUDirect",
       [](Ranks& r) {
         r[1].host = "node2";
         r[1].peer_memory = false;
       },
       Status::warning, "rank 1 (node2) has InfiniBand, but not", "modprobe nvidia_peermem"},
      {"cores", [](Ranks& r) { r[0].cpus = r[1].cpus = {3}; }, Status::warning,
       "ranks 0 and 1 are bound to the same core 3", "--bind-to none"},
      {"cores", [](Ranks& r) { r[1].devices[1].numa = 1; }, Status::warning,
       "rank 1 (node1) runs on NUMA node 0, its GPU is at node 1", "numactl --cpunodebind=1"},
      {"/dev/shm", [](Ranks& r) { r[0].shm_bytes = r[0].shm_free = 64 * kMiB; }, Status::failure,
       "64 MiB of 64 MiB free on node1, 2 ranks need 96 MiB", "--shm-size"},
      {"leftovers",
       [](Ranks& r) {
         r[0].leftovers = {{"/dev/shm/vader_segment.node1.1", 4 * kMiB}};
       },
       Status::warning, "1 of dead processes, 4 MiB: /dev/shm/vader_segment.node1.1",
       "rm -r /dev/shm/vader_segment.node1.1"},
      {"limits", [](Ranks& r) { r[1].memlock = 65536; }, Status::failure,
       "memlock is 65536 bytes on rank 1 (node1), which has InfiniBand", "ulimit -l unlimited"},
      {"limits", [](Ranks& r) { r[1].open_files = 256; }, Status::warning, "nofile is 256",
       "ulimit -n 65536"},
      {"clocks", [](Ranks& r) { r[1].clock = -95.0; }, Status::warning,
       "the clock of rank 1 (node1) is -95 s from that of rank 0", "NTP"},
      {"snapshot folder", [](Ranks& r) { r[1].snapshots.error = "Read-only file system"; },
       Status::failure, "rank 1 (node1) cannot write to runs: Read-only file system",
       "all ranks may write"},
      {"snapshot folder", [](Ranks& r) { r[1].snapshots.megabytes_per_second = 2.0; },
       Status::warning, "2 MB/s the slowest rank", "parallel file system"},
      {"snapshot folder", [](Ranks& r) { r[1].snapshots.sees_rank_0 = false; }, Status::failure,
       "rank 1 (node1) does not see what rank 0 wrote", "a shared file system"},
  };
  return all;
}

TEST(DoctorChecks, OfAHealthyNodeAreAllRight) {
  for (const FactCheck& check : fact_checks()) {
    const Finding finding = check.run(healthy());
    EXPECT_EQ(finding.status, Status::ok) << check.name << ": " << finding.what;
    EXPECT_EQ(finding.fix, "") << check.name;
    EXPECT_FALSE(finding.what.empty()) << check.name;
  }
}

TEST(DoctorChecks, EachPlantedFaultIsFoundInItsRowWithTheFixAndInNoOther) {
  for (const Fault& fault : faults()) {
    std::vector<RankFacts> ranks = healthy();
    fault.plant(ranks);
    const Finding finding = finding_of_row(ranks, fault.row);
    EXPECT_EQ(finding.status, fault.status) << fault.what;
    EXPECT_THAT(finding.what, HasSubstr(fault.what));
    EXPECT_THAT(finding.fix, HasSubstr(fault.fix)) << fault.what;
    for (const FactCheck& check : fact_checks()) {
      if (std::string(check.name) != fault.row) {
        EXPECT_LE(check.run(ranks).status, Status::skipped) << check.name << " for " << fault.what;
      }
    }
  }
}

TEST(DoctorNccl, OfABuildWithoutItIsSkippedWhateverLibTorchHasLoaded) {
  std::vector<RankFacts> ranks = healthy();
  for (RankFacts& rank : ranks) {
    rank.has_nccl = false;
  }
  const Finding finding = finding_of_row(ranks, "NCCL");
  EXPECT_EQ(finding.status, Status::skipped);
  EXPECT_EQ(finding.what, "not in this build");
  ranks[1].nccl_files.emplace_back("/opt/hpcx/libnccl.so.2");
  EXPECT_EQ(finding_of_row(ranks, "NCCL").status, Status::skipped);
}

TEST(DoctorChecks, OfAMachineWithoutAGpuAreNoWarning) {
  RankFacts rank;
  rank.host = "laptop";
  rank.device = "cpu";
  rank.transport = "solo";
  rank.cores = 2;
  rank.cpus = {0, 1};
  rank.libtorch_has_cuda = true;
  rank.cuda_runtime = 13000;
  rank.shm_free = rank.shm_bytes = 1024 * kMiB;
  rank.memlock = 65536;
  for (const FactCheck& check : fact_checks()) {
    const Finding finding = check.run({rank});
    EXPECT_LE(finding.status, Status::skipped) << check.name << ": " << finding.what;
  }
  EXPECT_THAT(finding_of_row({rank}, "ranks").what, HasSubstr("lockstep doctor -n N"));
}

TEST(DoctorChecks, TravelBetweenRanksWhole) {
  for (const RankFacts& rank : healthy()) {
    RankFacts changed = rank;
    changed.leftovers = {{"/dev/shm/nccl-x", 5}};
    changed.clock = 0.25;
    const std::string text = to_json(changed);
    EXPECT_EQ(to_json(from_json(text)), text);
    EXPECT_THAT(text, AllOf(HasSubstr("nccl-x"), HasSubstr("0.25"), HasSubstr("0000:41:00.0")));
  }
}

TEST(DoctorReport, AlignsRowsCountsThemAndEndsWithCode3IfOneFailed) {
  std::ostringstream out;
  Report report(out);
  report.title("lockstep doctor");
  report.add({"MPI", {Status::ok, "fine", ""}});
  EXPECT_EQ(report.exit_code(), 0);
  report.add({"clocks", {Status::warning, "apart", "set them"}});
  report.add({"driver", {Status::skipped, "none", ""}});
  EXPECT_EQ(report.exit_code(), 0) << "a warning is no failure";
  report.add({"NCCL", {Status::failure, "two", "remove one"}});
  report.finish(2.4);
  EXPECT_EQ(report.exit_code(), 3);
  EXPECT_EQ(out.str(),
            "lockstep doctor\n\n"
            "ok       MPI                fine\n"
            "warning  clocks             apart\n"
            "                            fix: set them\n"
            "-        driver             none\n"
            "FAILURE  NCCL               two\n"
            "                            fix: remove one\n"
            "\n1 ok, 1 warning, 1 failure, 1 not applicable, 2 s\n");
  EXPECT_THAT(report.json(healthy(), 2.4),
              AllOf(HasSubstr("\"exit_code\": 3"), HasSubstr("\"status\": \"failure\""),
                    HasSubstr("\"status\": \"skipped\""), HasSubstr("\"host\": \"node1\"")));
}

}  // namespace
}  // namespace lockstep::doctor
