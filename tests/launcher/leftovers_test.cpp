// What is removed of runs that were killed, and what only looks like it.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "clean/leftovers.h"
#include "clean/own_files.h"
#include "launch.h"
#include "machine/machine.h"

namespace lockstep::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::UnorderedElementsAre;
using ::testing::UnorderedElementsAreArray;
namespace fs = std::filesystem;

const std::string boot = "00112233445566778899aabbccddeeff";
const std::string random_part = "-0123456789abcdef";

std::string host_and_user() {
  char host[256] = {};
  gethostname(host, sizeof host - 1);
  return std::string(host) + "." + std::to_string(geteuid());
}

/// A machine of its own: its shared memory, temporary files and processes are folders. Process 100
/// lives and began at 500; 99 is dead.
class Leftovers : public ::testing::Test {
 protected:
  Leftovers() {
    for (const fs::path& folder : {shm(), session(), proc() / "self/ns", proc() / "100",
                                   proc() / "300", proc() / "sys/kernel/random"}) {
      fs::create_directories(folder);
    }
    fs::create_symlink("pid:[7]", proc() / "self/ns/pid");
    write(proc() / "sys/kernel/random/boot_id", "00112233-4455-6677-8899-aabbccddeeff\n");
    write_status("self", getpid(), 'R', 1);
    write_status("100", 100, 'S', 500);
    write_status("300", 300, 'S', 600);
    for (const char* process : {"100", "300"}) {
      write(proc() / process / "maps", "");
    }
    places = {shm(), tmp(), proc(), 0};
  }
  void write_status(const std::string& folder, int process, char state, int start) const {
    std::string text = std::to_string(process) + " (a) b) " + state;
    for (int field = 4; field < 22; ++field) {
      text += " " + std::to_string(field);
    }
    write(proc() / folder / "stat", text + " " + std::to_string(start) + " 23\n");
  }
  static std::string mark(int process, int start = 500) {
    return boot + "-7-" + std::to_string(process) + "-" + std::to_string(start);
  }
  /// A name as lockstep gives it.
  static std::string memory(const std::string& mark) { return "lockstep-" + mark + random_part; }
  std::string note_session(const std::string& mark, const std::string& host = host_name()) const {
    write(tmp() / ("lockstep_" + mark + "-mpirun." + host), "");
    return tmp() / ("lockstep_" + mark + "-mpirun." + host);
  }
  std::string note_memory(const std::string& mark, const std::string& job,
                          const std::string& host = host_name()) const {
    write(shm() / ("lockstep_" + mark + "-job-" + job + "." + host), "");
    return shm() / ("lockstep_" + mark + "-job-" + job + "." + host);
  }
  fs::path root() const { return folder_.path(); }
  fs::path shm() const { return root() / "shm"; }
  fs::path tmp() const { return root() / "tmp"; }
  fs::path proc() const { return root() / "proc"; }
  fs::path session() const { return tmp() / ("ompi." + host_and_user()); }
  static void write(const fs::path& path, const std::string& text = "x") {
    std::ofstream(path) << text;
  }
  /// All that Open MPI 4.1 makes for a job of two ranks.
  fs::path make_session(const std::string& name) const {
    const fs::path made = session() / name;
    for (const char* inner : {"0/0", "1/0", "1/1", "pmix_dstor_ds12_99", "pmix_dstor_ds21_99"}) {
      fs::create_directories(made / inner);
    }
    for (const char* file :
         {"contact.txt", "hwloc.sm", "pmix_dstor_ds12_99/dstore_sm.lock",
          "pmix_dstor_ds12_99/initial-pmix_shared-segment-0",
          "pmix_dstor_ds21_99/smdataseg-801636353-0", "pmix_dstor_ds21_99/smlockseg-801636353",
          "pmix_dstor_ds21_99/smseg-801636353-0"}) {
      write(made / file);
    }
    EXPECT_EQ(mkfifo((made / "0/debugger_attach_fifo").c_str(), 0600), 0);
    return made;
  }
  /// All entries with what they hold.
  std::vector<std::string> everything() const {
    std::vector<std::string> found;
    for (const auto& entry : fs::recursive_directory_iterator(root())) {
      struct stat info = {};
      lstat(entry.path().c_str(), &info);
      found.push_back(entry.path().string() + " " + std::to_string(info.st_mode) + " " +
                      std::to_string(info.st_nlink) + " " + std::to_string(info.st_size));
    }
    return found;
  }
  void expect_nothing_is_removed() const {
    const auto before = everything();
    EXPECT_THAT(find_leftovers(places), IsEmpty());
    EXPECT_THAT(remove_leftovers(places), IsEmpty());
    EXPECT_THAT(everything(), UnorderedElementsAreArray(before));
  }

  testing::Folder folder_;
  LeftoverPlaces places;
};

TEST_F(Leftovers, OfDeadProcessesAreListedThenRemoved) {
  const std::string segment = "vader_segment." + host_and_user();
  const std::vector<std::string> left = {
      shm() / memory(mark(99)), shm() / ("lockstep_" + mark(99) + "-start-prte.node1_12_1-0-0"),
      shm() / ("lockstep_" + mark(99) + "-end-2147483649.1-12-140"),
      shm() / (segment + ".2fc80001.0"), make_session("pid.99")};
  for (const std::string& path : left) {
    if (!fs::is_directory(path)) {
      write(path);
    }
  }
  note_session(mark(99));
  note_memory(mark(99), "2fc80001");
  const auto before = everything();
  EXPECT_THAT(find_leftovers(places), UnorderedElementsAreArray(left));
  EXPECT_THAT(everything(), UnorderedElementsAreArray(before));
  EXPECT_THAT(remove_leftovers(places), UnorderedElementsAreArray(left));
  EXPECT_THAT(find_leftovers(places), IsEmpty());
  EXPECT_TRUE(fs::is_empty(shm()));
  EXPECT_TRUE(fs::is_empty(session()));
  EXPECT_THAT(names_in(open_folder(tmp())), ElementsAre("ompi." + host_and_user()));
}

TEST_F(Leftovers, OfOpenMpi5AreListedThenRemoved) {
  const std::string of_user = host_and_user().substr(host_and_user().rfind('.'));
  const std::string host = host_and_user().substr(0, host_and_user().rfind('.'));
  const std::string segment = shm() / ("sm_segment." + host_and_user() + ".26900001.1");
  std::vector<std::string> left = {segment};
  write(segment);
  note_memory(mark(99), "26900001");
  int process = 98;
  for (const std::string& name :
       std::vector<std::string>{"ompi.98", "prterun." + host + ".97" + of_user}) {
    const fs::path made = tmp() / name;
    note_session(mark(process--));
    fs::create_directories(made / "0/0");
    fs::create_directories(made / "1/1");
    for (const char* file : {"hwloc.sm", "pmix.node1.tool", "pmix.node1.tool.prterun-node1-98@0",
                             "1/pmix-gds-shmem2.node1-prterun-node1-98@1.jobdata.98",
                             "1/pmix-gds-shmem2.node1-prterun-node1-98@1.session.ffffffff.98"}) {
      write(made / file);
    }
    left.push_back(made);
  }
  fs::create_directories(tmp() / "ompi.96");  // no note names it
  const auto before = everything();
  EXPECT_THAT(find_leftovers(places), UnorderedElementsAreArray(left));
  EXPECT_THAT(everything(), UnorderedElementsAreArray(before));
  EXPECT_THAT(remove_leftovers(places), UnorderedElementsAreArray(left));
  EXPECT_TRUE(fs::is_empty(shm()));
  EXPECT_THAT(names_in(open_folder(tmp())),
              UnorderedElementsAre("ompi." + host_and_user(), "ompi.96"));
}

TEST_F(Leftovers, AreThoseOfAProcessWhoseNumberAnotherOneHasNow) {
  const std::string left = shm() / memory(mark(100, 499));
  write(left);
  EXPECT_THAT(remove_leftovers(places), ElementsAre(left));
}

TEST_F(Leftovers, AreThoseOfAProcessThatIsOnlyNotWaitedFor) {
  const std::string left = shm() / memory(mark(100));
  write(left);
  write_status("100", 100, 'Z', 500);
  EXPECT_THAT(remove_leftovers(places), ElementsAre(left));
}

TEST_F(Leftovers, AreNotThoseOfLivingProcesses) {
  write(shm() / memory(mark(100)));
  write(shm() / ("lockstep_" + mark(100) + "-start-job-0-0"));
  write(shm() / ("vader_segment." + host_and_user() + ".1.0"));
  make_session("pid.100");
  note_session(mark(100));
  note_memory(mark(100), "1");
  expect_nothing_is_removed();
}

TEST_F(Leftovers, AreNotThoseOfOtherContainersAndMachines) {
  for (const std::string& elsewhere : {boot + "-8-99-500", std::string(32, '0') + "-7-99-500"}) {
    write(shm() / memory(elsewhere));
    note_session(elsewhere);
    note_memory(elsewhere, "1");
  }
  write(shm() / ("vader_segment." + host_and_user() + ".1.0"));
  make_session("pid.99");
  note_session(mark(99));  // also the number of one of ours, in a folder that both share
  const auto before = everything();
  EXPECT_THAT(find_leftovers(places), IsEmpty());
  EXPECT_THAT(remove_leftovers(places), IsEmpty());
  EXPECT_THAT(everything(), UnorderedElementsAreArray(before));
}

TEST_F(Leftovers, OfOpenMpiAreOnlyThoseOfJobsThatANoteNames) {
  write(shm() / ("vader_segment." + host_and_user() + ".1.0"));
  make_session("pid.99");
  expect_nothing_is_removed();
  note_memory(mark(99), "1");
  const std::string other = shm() / ("vader_segment." + host_and_user() + ".2.0");
  write(other);
  EXPECT_THAT(remove_leftovers(places),
              ElementsAre(shm() / ("vader_segment." + host_and_user() + ".1.0")));
  EXPECT_TRUE(fs::exists(other));
}

TEST_F(Leftovers, AreNoSessionsOfAnMpirunWithTheNumberOfADeadOne) {
  make_session("pid.100");
  const std::string note = note_session(mark(100, 499));
  expect_nothing_is_removed();
  EXPECT_TRUE(fs::exists(note));
}

TEST_F(Leftovers, KeepTheirNoteAsLongAsTheyAreThere) {
  const std::string segment = shm() / ("vader_segment." + host_and_user() + ".1.0");
  write(segment);
  const std::string note = note_memory(mark(99), "1");
  const std::string of_session = note_session(mark(99));
  places.min_age_seconds = 3600;
  EXPECT_THAT(remove_leftovers(places), IsEmpty());
  EXPECT_TRUE(fs::exists(note));
  EXPECT_FALSE(fs::exists(of_session));  // there was none
  places.min_age_seconds = 0;
  EXPECT_THAT(remove_leftovers(places), ElementsAre(segment));
  EXPECT_FALSE(fs::exists(note));
}

TEST_F(Leftovers, AreThoseOfThisHostNameAlone) {
  const std::string segment = shm() / "vader_segment.other.0.1.0";
  write(segment);
  make_session("pid.99");
  const std::string session = note_session(mark(99), "other");
  const std::string memory = note_memory(mark(99), "1", "other");
  expect_nothing_is_removed();
  EXPECT_TRUE(fs::exists(session) && fs::exists(memory));  // for a launcher of that name
}

TEST_F(Leftovers, AreNotSegmentsThatAreYoungOrMappedByNameOrUnderAnotherName) {
  const std::string segment = shm() / ("vader_segment." + host_and_user() + ".2fc80001.");
  note_memory(mark(99), "2fc80001");
  for (const char* rank : {"0", "1", "2"}) {
    write(segment + rank);
  }
  struct stat info = {};
  ASSERT_EQ(stat((segment + "1").c_str(), &info), 0);
  write(proc() / "100/maps", "7f00-7f01 rw-s 00000000 00:17 5 " + segment + "0\n");
  const std::string inode = std::to_string(info.st_ino) + " /elsewhere/segment\n";
  char device[32] = {};
  std::snprintf(device, sizeof device, "%02x:%02x ", major(info.st_dev), minor(info.st_dev));
  write(proc() / "300/maps", "7f00-7f01 rw-s 00000000 " + (device + inode));
  places.min_age_seconds = 3600;
  EXPECT_THAT(find_leftovers(places), IsEmpty());
  places.min_age_seconds = 0;
  EXPECT_THAT(find_leftovers(places), ElementsAre(segment + "2"));
  write(proc() / "300/maps", "7f00-7f01 rw-s 00000000 fff:ff " + inode);  // of another device
  EXPECT_THAT(find_leftovers(places), UnorderedElementsAre(segment + "1", segment + "2"));
}

TEST_F(Leftovers, AreNotNamesThatOnlyLookLikeThem) {
  const std::string dead = mark(99);
  for (const std::string& name : std::vector<std::string>{"lockstep-20260101-weights",
                                                          "lockstep_2024_runs",
                                                          "lockstep.memory-0",
                                                          "lockstep-1",
                                                          "lockstep-99",
                                                          "lockstep-99" + random_part,
                                                          "lockstep_99-start-job-0-0",
                                                          "lockstep-" + dead,
                                                          "lockstep-" + dead + "-",
                                                          "lockstep-" + dead + "-0",
                                                          "lockstep_" + dead,
                                                          "lockstep_" + dead + "-",
                                                          "lockstep_" + dead + "-start",
                                                          "lockstep_" + dead + "-start-job",
                                                          "lockstep_" + dead + "-start-job-0",
                                                          "lockstep_" + dead + "-middle-job-0-0",
                                                          "lockstep_" + dead + "-start--0-0",
                                                          "lockstep_" + dead + "-start-job-00-0",
                                                          "lockstep_" + dead + "-start-job-0-0-0",
                                                          "lockstep_" + dead + "-start-job-0-0.txt",
                                                          "lockstep_" + dead + "-start-a b-0-0",
                                                          "lockstep_" + dead + "-mpiruns",
                                                          "lockstep_" + dead + "-mpirun-1",
                                                          "lockstep_" + dead + "-job",
                                                          "lockstep_" + dead + "-job-",
                                                          "lockstep_" + dead + "-job-01",
                                                          "lockstep_" + dead + "-job-123456789",
                                                          "lockstep_" + dead + "-job-1.txt",
                                                          "lockstep-" + dead + "-0123456789ABCDEF",
                                                          "lockstep-" + dead + "-0123456789abcde",
                                                          "lockstep-" + dead + "-0123456789abcdef0",
                                                          "lockstep-" + dead + "-0123456789abcdeg",
                                                          "lockstep"}) {
    write(shm() / name);
    write(tmp() / name);
  }
  make_session("pid.1");
  for (const std::string number : {"", "0", "099", "+99", "-99", " 99", "99 ", "9a9", "0x63",
                                   "4294967395", "18446744073709551715", "99999999999999999999"}) {
    const std::string other = boot + "-7-" + number + "-500";
    write(shm() / memory(other));
    note_session(other);
    make_session("pid." + number);
  }
  for (const std::string ending : {"~", ".bak", "\n", " ", "-copy", "0"}) {
    write(shm() / (memory(dead) + ending));
  }
  for (const std::string beginning : {".", "x", "my-", " "}) {
    write(shm() / (beginning + memory(dead)));
  }
  const std::string segment = "vader_segment." + host_and_user();
  for (const std::string job : {"1", "a1", "12345678", "f"}) {
    note_memory(dead, job);
  }
  note_session(dead);
  for (const std::string& name : std::vector<std::string>{
           segment, segment + ".", segment + ".1", segment + ".1.", segment + ".1.0.bak",
           segment + ".00a1.0", segment + ".123456789.0", segment + ".xyz.0", segment + ".1.00",
           segment + ".1.0\n", "vader_segment.other.7.1.0", "nccl-1", "sem.99"}) {
    write(shm() / name);
  }
  for (const std::string name : {"pid.99.old", "pid99", "apid.99", "pid.99\n", "jf.99"}) {
    make_session(name);
  }
  fs::create_directories(tmp() / "ompi.other.7/pid.99/0");
  fs::create_directories(shm() / "lockstep-20250101-weights/deep");
  write(shm() / "lockstep-20250101-weights/deep/model.pt");
  EXPECT_THAT(find_leftovers(places), IsEmpty());
  for (const std::string job : {"1", "a1", "12345678", "f"}) {
    fs::remove(note_memory(dead, job));
  }
  fs::remove(note_session(dead));
  expect_nothing_is_removed();
}

TEST_F(Leftovers, AreNotEntriesOfAnotherKindUnderTheirNames) {
  auto name = [number = 10]() mutable { return memory(mark(number++)); };
  write(root() / "data");
  write(root() / "linked");
  fs::create_directories(root() / "folder/inner");
  write(root() / "folder/inner/data");
  fs::create_directories(shm() / name());
  fs::create_symlink(root() / "linked", shm() / name());
  fs::create_symlink(root() / "folder", shm() / name());
  fs::create_symlink("nowhere", shm() / name());
  fs::create_hard_link(root() / "data", shm() / name());
  ASSERT_EQ(mkfifo((shm() / name()).c_str(), 0600), 0);
  const int listener = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const std::string path = shm() / name();
  ASSERT_LT(path.size(), sizeof address.sun_path);
  path.copy(address.sun_path, path.size());
  ASSERT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  close(listener);
  fs::create_directories(shm() / ("vader_segment." + host_and_user() + ".1.0"));
  note_memory(mark(99), "1");
  fs::create_directory_symlink(root() / "folder", session() / "pid.99");
  write(session() / "pid.98");
  for (const int process : {99, 98, 97, 96}) {
    note_session(mark(process));
  }
  fs::create_symlink(root() / "linked", tmp() / ("lockstep_" + mark(95) + "-mpirun"));
  make_session("pid.95");
  if (geteuid() == 0) {
    const std::string others = shm() / name();
    write(others);
    ASSERT_EQ(chown(others.c_str(), 65534, 65534), 0);
    const fs::path foreign = make_session("pid.97");
    ASSERT_EQ(chown(foreign.c_str(), 65534, 65534), 0);
    ASSERT_EQ(chown((make_session("pid.96") / "0/0").c_str(), 65534, 65534), 0);
  }
  expect_nothing_is_removed();
}

TEST_F(Leftovers, AreNoSessionsThatHoldAnythingThatOpenMpiDoesNotMake) {
  int number = 10;
  const auto make = [&] {
    note_session(mark(number));
    return make_session("pid." + std::to_string(number++));
  };
  write(root() / "data");
  write(root() / "linked");
  fs::create_directories(root() / "folder");
  write(make() / "weights.pt");
  write(make() / "1/1/weights.pt");
  write(make() / "pmix_dstor_ds12_99/smseg-1-0 (copy)");
  write(make() / "0/0/.hidden");
  fs::create_directories(make() / "runs");
  fs::create_directories(make() / "1/1/0");
  fs::create_directories(make() / "01");
  fs::create_symlink(root() / "linked", make() / "smseg-1-0");
  fs::create_directory_symlink(root() / "folder", make() / "2");
  fs::create_hard_link(root() / "data", make() / "smseg-1-0");
  expect_nothing_is_removed();
}

TEST_F(Leftovers, AreNotLookedForThroughALinkToASessionFolder) {
  const fs::path made = make_session("pid.99");
  fs::rename(session(), root() / "moved");
  fs::create_directory_symlink(root() / "moved", session());
  note_session(mark(99));
  EXPECT_THAT(find_leftovers(places), IsEmpty());
  EXPECT_THAT(remove_leftovers(places), IsEmpty());
  EXPECT_TRUE(fs::exists(root() / "moved/pid.99/contact.txt"));
}

TEST_F(Leftovers, AreLeftWhereProcessesAreNotSeen) {
  write(shm() / memory(mark(99)));
  write(shm() / ("vader_segment." + host_and_user() + ".1.0"));
  make_session("pid.99");
  note_memory(mark(99), "1");
  note_session(mark(99));
  write_status("self", getpid() + 1, 'R', 1);
  expect_nothing_is_removed();  // /proc of another namespace
  fs::remove(proc() / "self/ns/pid");
  expect_nothing_is_removed();  // no /proc
}

/// `lockstep clean` on this machine, with a folder for temporary files of its own.
class LauncherClean : public ::testing::Test {
 protected:
  LauncherClean() {
    setenv("TMPDIR", folder_.path().c_str(), /*overwrite=*/1);
    const pid_t child = fork();
    if (child == 0) {
      pause();
    }
    note_job(leftover_places(), child);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    left_ = sessions() + "/pid." + std::to_string(child);
    fs::create_directories(left_ + "/0/0");
    fs::create_directories(sessions() + "/pid.99-mine");
  }
  ~LauncherClean() override { unsetenv("TMPDIR"); }
  std::string sessions() const { return folder_.path() + "/ompi." + host_and_user(); }
  /// Other than the session folders of this user.
  std::vector<std::string> others() const {
    auto names = names_in(open_folder(folder_.path()));
    names.erase(std::remove(names.begin(), names.end(), "ompi." + host_and_user()), names.end());
    return names;
  }
  testing::Folder folder_;
  std::string left_;
};

TEST_F(LauncherClean, ListsWhatItWouldRemoveAndRemovesItWithoutList) {
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"clean", "--list"}, {"clean"}}) {
    EXPECT_TRUE(fs::exists(left_));
    const testing::Launched result = testing::launch(command);
    EXPECT_EQ(result.code, 0);
    EXPECT_THAT(result.out, HasSubstr(left_ + "\n"));
    EXPECT_THAT(result.out, Not(HasSubstr("pid.99-mine")));
  }
  EXPECT_FALSE(fs::exists(left_));
  EXPECT_THAT(others(), IsEmpty());
  EXPECT_THAT(testing::launch({"clean", "--list"}).out, Not(HasSubstr(left_)));
  EXPECT_TRUE(fs::exists(sessions() + "/pid.99-mine"));
}

TEST_F(LauncherClean, TakesNoOtherArguments) {
  EXPECT_EQ(testing::launch({"clean", "/tmp"}).code, 2);
  EXPECT_EQ(testing::launch({"clean", "--all"}).code, 2);
  EXPECT_THAT(testing::launch({"clean", "--help"}).out, HasSubstr("--list"));
  EXPECT_TRUE(fs::exists(left_));
}

TEST_F(LauncherClean, RunRemovesThemToo) {
  const testing::Launched result = testing::launch({"run", "-n", "1", "--", "/bin/true"});
  EXPECT_FALSE(fs::exists(left_));
  EXPECT_EQ(result.code, 0);
}

TEST_F(LauncherClean, ARunLeavesNoNotes) {
  const testing::Launched result = testing::launch(
      testing::script({"-n", "2"}, "[ $RANK = 1 ] || ls -R $TMPDIR /dev/shm; exit 0"));
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, HasSubstr("-mpirun."));
  EXPECT_THAT(others(), IsEmpty());
}

TEST_F(LauncherClean, TakesWhatAKilledMpirunLeft) {
  const std::string word = testing::unique_word();
  testing::launch(
      testing::script({"-n", "2"}, "kill -9 $(ps -o ppid= $PPID); sleep 60; : " + word));
  EXPECT_TRUE(testing::all_gone(word));
  EXPECT_EQ(testing::launch({"clean"}).code, 0);
  EXPECT_THAT(others(), IsEmpty());
  EXPECT_THAT(names_in(open_folder(sessions())), ElementsAre("pid.99-mine"));
}

}  // namespace
}  // namespace lockstep::launcher
