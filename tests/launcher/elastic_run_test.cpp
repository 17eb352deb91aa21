// Jobs that go on with fewer ranks, and with more again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <fstream>

#include "launch.h"
#include "made_driver.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::string size = "SIZE=${OMPI_COMM_WORLD_SIZE:-1}; ";

TEST(LauncherElastic, AJobGoesOnWithoutTheRankThatFailsAgainAtOnce) {
  const Launched result = launch(script(
      {"-n", "3", "--max-restarts", "5", "--min-ranks", "2"},
      size + "[ $SIZE = 3 ] && { [ $RANK = 1 ] && exit 7; exec sleep 600; }; echo of $SIZE"));
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("[0] of 2"), HasSubstr("[1] of 2")));
  EXPECT_THAT(result.error,
              AllOf(HasSubstr("attempt 3 of at most 6\nlockstep: the job goes on with 2 ranks "
                              "instead of 3: the place of rank 1 failed in two attempts in a row"),
                    Not(HasSubstr("not started again"))));
}

TEST(LauncherElastic, ARankThatIsLeftOutTakesItsDeviceWithIt) {
  const MadeDriver driver("8");
  setenv("CUDA_VISIBLE_DEVICES", "4,5,6", 1);
  const Launched result = launch(
      script({"--max-restarts", "5", "--min-ranks", "2"},
             size + "[ $SIZE = 3 ] && { [ $RANK = 1 ] && exit 7; exec sleep 600; }; echo devices "
                    "$CUDA_VISIBLE_DEVICES"));
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, HasSubstr("[0] devices 4,6\n"));
}

TEST(LauncherElastic, AJobEndsRatherThanGoOnWithTooFewRanks) {
  const Launched result = launch(script({"-n", "2", "--max-restarts", "5", "--min-ranks", "2"},
                                        "[ $RANK = 1 ] && exit 7; exec sleep 600"));
  EXPECT_EQ(result.code, 7);
  EXPECT_THAT(result.error, HasSubstr("not started again: the place of rank 1 failed in two "
                                      "attempts in a row: only 1 rank would have a place, fewer "
                                      "than --min-ranks 2"));
}

/// An mpirun whose hosts are this one; HOST.down in the folder makes a host unreachable.
class FakeHosts {
 public:
  FakeHosts() {
    std::ofstream(mpirun()) << R"(#!/bin/bash
[ "$1" = --version ] && { echo 'mpirun (Open MPI) 4.1.4'; exit 0; }
while :; do
  case $1 in
  -n) ranks=$2 && shift 2 ;;
  --host) hosts=$2 && shift 2 ;;
  --bind-to | -x) shift 2 ;;
  --*) shift ;;
  *) break ;;
  esac
done
for host in ${hosts//,/ }; do
  [ ! -e "$(dirname "$0")/${host%:*}.down" ] || { echo "no route to ${host%:*}" >&2; exit 213; }
done
for ((rank = 0; rank < ranks; ++rank)); do
  OMPI_COMM_WORLD_RANK=$rank OMPI_COMM_WORLD_SIZE=$ranks "$@" &
done
code=0
for rank in $(jobs -p); do wait "$rank" || code=$?; done
exit $code
)";
    chmod(mpirun().c_str(), 0755);
  }
  std::string mpirun() const { return folder_.path() + "/mpirun"; }
  std::string down(const std::string& host) const { return folder_.path() + "/" + host + ".down"; }

 private:
  Folder folder_;
};

TEST(LauncherElastic, AHostThatIsGoneIsLeftOutAndUsedAgainWhenItIsBack) {
  const FakeHosts hosts;
  // Both attempts save a snapshot before they fail. Both hosts have the name of this one.
  const std::string b_dies =
      "sign p/1; [ $RANK = 3 ] && { : >" + hosts.down("b") + "; exit 7; }; exit 0";
  const std::string b_is_back = "sign p/2; rm -f " + hosts.down("b") + "; exit 7";
  const Launched result = launch(
      signing({"-n", "4", "--host", "a:2,b:2", "--mpirun", hosts.mpirun(), "--max-restarts", "5",
               "--min-ranks", "2"},
              size + "echo attempt $LOCKSTEP_ATTEMPT of $SIZE; case $LOCKSTEP_ATTEMPT in 0) " +
                  b_dies + ";; 1) " + b_is_back + ";; *) exit 0;; esac"));
  EXPECT_EQ(result.code, 0) << result.error;
  EXPECT_THAT(result.out, AllOf(HasSubstr("[3] attempt 0 of 4"), HasSubstr("[1] attempt 1 of 2"),
                                Not(HasSubstr("[2] attempt 1")), HasSubstr("[3] attempt 2 of 4")));
  EXPECT_THAT(
      result.error,
      AllOf(HasSubstr("the job goes on with 2 ranks instead of 4: host b does not answer\n"),
            HasSubstr("the job goes on with 4 ranks instead of 2: host b is used again\n")));
}

TEST(LauncherElastic, AJobThatCannotStartWithoutAHostGoesOnWithTheOthers) {
  const FakeHosts hosts;
  std::ofstream(hosts.down("b")) << "from the beginning";
  const Launched result = launch(script({"-n", "2", "--host", "a,b", "--mpirun", hosts.mpirun(),
                                         "--max-restarts", "5", "--min-ranks", "1"},
                                        size + "echo of $SIZE"));
  EXPECT_EQ(result.code, 0) << result.error;
  EXPECT_THAT(result.out, HasSubstr("[0] of 1"));
  EXPECT_THAT(result.error, HasSubstr("no route to b"));
}

TEST(LauncherElastic, WrongUseEndsWithCode2) {
  const Launched alone = launch({"run", "-n", "2", "--min-ranks", "1", "--", "/bin/true"});
  EXPECT_EQ(alone.code, 2);
  EXPECT_THAT(alone.error, HasSubstr("give --max-restarts, too"));
  const Launched many =
      launch({"run", "-n", "2", "--min-ranks", "3", "--max-restarts", "1", "--", "/bin/true"});
  EXPECT_EQ(many.code, 2);
  EXPECT_THAT(many.error, HasSubstr("--min-ranks 3 is more than the job's 2 ranks"));
}

}  // namespace
}  // namespace lockstep::testing
