// What still has to work where no memory is left. In this program each thread can make operator new
// fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/write/background_task.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/runtime/runtime.h>

#include <cstdlib>
#include <new>
#include <vector>

#include "test_names.h"

namespace {
thread_local bool no_memory_left = false;
}

// Not inlined: the compiler would warn of memory of malloc that delete takes.
[[gnu::noinline]] void* operator new(std::size_t size) {
  void* memory = no_memory_left ? nullptr : std::malloc(size == 0 ? 1 : size);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

namespace lockstep {
namespace {

/// Runs a program that throws `failure` and has no memory from then on.
int code_of_run(const std::exception_ptr& failure, std::string& printed) {
  ::testing::internal::CaptureStderr();
  const int code = run(0, nullptr, [&](Runtime&) {
    no_memory_left = true;
    std::rethrow_exception(failure);
  });
  no_memory_left = false;
  printed = ::testing::internal::GetCapturedStderr();
  return code;
}

TEST(NoMemoryLeft, ARunEndsWithItsCodeAndTheRanksName) {
  std::string printed;
  EXPECT_EQ(code_of_run(std::make_exception_ptr(std::bad_alloc()), printed), 23);
  EXPECT_THAT(printed, HasSubstr("rank 0: out of memory"));
}

TEST(NoMemoryLeft, ARunStillPrintsAnErrorThatWasMadeBefore) {
  std::string printed;
  EXPECT_EQ(code_of_run(std::make_exception_ptr(
                            Error("a file of the data set is cut short", ExitCode::data)),
                        printed),
            10);
  EXPECT_THAT(printed, HasSubstr("rank 0: a file of the data set is cut short"));
}

TEST(NoMemoryLeft, ATaskInTheBackgroundFailsWhereItIsAwaited) {
  snapshot::BackgroundTask task;
  task.start([] { throw std::bad_alloc(); });
  EXPECT_THROW(task.join(), std::bad_alloc);
  EXPECT_TRUE(task.is_done());
  task.start([] {});
  EXPECT_NO_THROW(task.join());
}

TEST(NoMemoryLeft, ATaskThatFailedMayBeDropped) {
  snapshot::BackgroundTask task;
  task.start([] { throw std::bad_alloc(); });
}

TEST(NoMemoryLeft, ACommunicatorCanBeClosed) {
  std::vector<Communicator> ranks = Communicator::threads(2);
  no_memory_left = true;
  ranks.clear();
  no_memory_left = false;
}

}  // namespace
}  // namespace lockstep
