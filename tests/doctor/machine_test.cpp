// The readers of lockstep doctor, on folders with planted files.
#include <doctor/folder_probe.h>
#include <doctor/machine_facts.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/impl/process_mark.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace lockstep::doctor {
namespace {

namespace fs = std::filesystem;

/// Folders that stand for those of the machine.
class MachineFiles : public ::testing::Test {
 protected:
  MachineFiles() {
    std::string path = ::testing::TempDir() + "doctor-XXXXXX";
    root_ = mkdtemp(path.data());
    folders_.shared_memory = root_ + "/shm";
    folders_.temporary = root_ + "/tmp";
    folders_.processes = root_ + "/proc";
    folders_.system = root_ + "/sys";
    folders_.youngest_leftover = 0.0;
    fs::create_directories(folders_.shared_memory);
  }
  ~MachineFiles() override { fs::remove_all(root_); }

  void write(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(path).parent_path());
    std::ofstream(path) << text;
  }
  std::vector<std::string> leftovers() const {
    std::vector<std::string> paths;
    for (const Leftover& leftover : find_leftovers(folders_)) {
      paths.push_back(leftover.path.substr(root_.size()));
    }
    return paths;
  }

  std::string root_;
  MachineFolders folders_;
};

TEST_F(MachineFiles, ASegmentThatNoProcessMapsIsALeftover) {
  write(folders_.shared_memory + "/vader_segment.node.0.1", "12345");
  write(folders_.shared_memory + "/vader_segment.node.0.2", "in use");
  write(folders_.shared_memory + "/nccl-Ab12Cd", "");
  write(folders_.shared_memory + "/somebody-elses", "");
  write(folders_.processes + "/17/maps",
        "7f00-7f01 rw-s 0 00:1 5 " + folders_.shared_memory + "/vader_segment.node.0.2\n");
  EXPECT_THAT(leftovers(),
              ::testing::ElementsAre("/shm/nccl-Ab12Cd", "/shm/vader_segment.node.0.1"));
  EXPECT_EQ(find_leftovers(folders_)[1].bytes, 5);
  folders_.youngest_leftover = 3600.0;
  EXPECT_THAT(leftovers(), ::testing::IsEmpty()) << "they may belong to a job that starts";
}

TEST_F(MachineFiles, OfLockstepsNamesOnlyThoseOfDeadProcessesAreLeftovers) {
  folders_.processes = "/proc";
  auto mark = lockstep::detail::mark_of(getpid()).value();
  const std::string shm = folders_.shared_memory + "/lockstep";
  write(shm + "-" + to_text(mark) + "-0123456789abcdef", "lives");
  write(shm + "_" + to_text(mark) + "-job-1.node", "");
  write(shm + "-20260101-weights", "a week of work");
  EXPECT_THAT(leftovers(), ::testing::IsEmpty());
  mark.start += 1;
  write(shm + "-" + to_text(mark) + "-0123456789abcdef", "dead");
  write(shm + "_" + to_text(mark) + "-job-1.node", "");
  EXPECT_EQ(leftovers().size(), 2u);
}

TEST_F(MachineFiles, ASessionFolderOfADeadProcessIsALeftover) {
  const std::string sessions = "/ompi.node." + std::to_string(geteuid());
  fs::create_directories(folders_.temporary + sessions + "/pid.17");
  fs::create_directories(folders_.temporary + sessions + "/pid.18");
  fs::create_directories(folders_.temporary + "/ompi.node.4294960000/pid.18");
  fs::create_directories(folders_.processes + "/17");
  for (const char* name : {"/ompi.17", "/ompi.18", "/ompi.18.old"}) {  // of Open MPI 5
    fs::create_directories(folders_.temporary + name);
  }
  EXPECT_THAT(leftovers(),
              ::testing::UnorderedElementsAre("/tmp" + sessions + "/pid.18", "/tmp/ompi.18"));
}

TEST_F(MachineFiles, ActivePortsAndThePeerMemoryModuleAreRead) {
  const std::string ports = folders_.system + "/class/infiniband/mlx5_0/ports";
  write(ports + "/1/state", "4: ACTIVE\n");
  write(ports + "/2/state", "1: DOWN\n");
  write(folders_.system + "/bus/pci/devices/0000:41:00.0/numa_node", "1\n");
  write(folders_.system + "/bus/pci/devices/0000:42:00.0/numa_node", "-1\n");
  write(folders_.processes + "/meminfo", "MemTotal: 9 kB\nMemAvailable:   2048 kB\n");
  RankFacts facts;
  read_machine(facts, folders_);
  EXPECT_EQ(facts.fabric_ports, 1);
  EXPECT_FALSE(facts.peer_memory);
  EXPECT_EQ(facts.memory_available, 2048 * 1024);
  EXPECT_GT(facts.shm_bytes, 0);
  EXPECT_GT(facts.cores, 0);
  EXPECT_FALSE(facts.host.empty());
  EXPECT_EQ(numa_of_device("0000:41:00.0", folders_), 1);
  EXPECT_EQ(numa_of_device("0000:42:00.0", folders_), -1);
  EXPECT_EQ(numa_of_device("0000:43:00.0", folders_), -1);
  fs::create_directories(folders_.system + "/module/nvidia_peermem");
  read_machine(facts, folders_);
  EXPECT_TRUE(facts.peer_memory);
}

TEST_F(MachineFiles, ASnapshotFolderIsMadeMeasuredAndLeftEmpty) {
  const std::string folder = root_ + "/runs/new";
  {
    const FolderProbe probe(folder, 100'000);
    EXPECT_EQ(probe.facts().error, "");
    EXPECT_GT(probe.facts().megabytes_per_second, 0.0);
    EXPECT_GT(probe.facts().sync_seconds, 0.0);
    EXPECT_TRUE(fs::exists(probe.path()));
    EXPECT_EQ(fs::status(probe.path()).permissions(), fs::perms(0600));
    EXPECT_NE(FolderProbe(folder, 1000).path(), probe.path());
  }
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST_F(MachineFiles, ALinkThatSomebodyHasLaidInASnapshotFolderIsNotFollowed) {
  write(root_ + "/precious", "ten years");
  fs::create_directories(root_ + "/shared");
  fs::create_symlink("../precious", root_ + "/shared/.lockstep-doctor-rank-0");
  EXPECT_EQ(FolderProbe(root_ + "/shared", 1000).facts().error, "");
  EXPECT_EQ(fs::file_size(root_ + "/precious"), 9u);
}

TEST_F(MachineFiles, ASnapshotFolderThatCannotBeWrittenToSaysWhy) {
  write(root_ + "/file", "");
  EXPECT_EQ(FolderProbe(root_ + "/file/runs", 1000).facts().error, "Not a directory");
}

}  // namespace
}  // namespace lockstep::doctor
