// Memory of ranks whose names for it lead a peer to another file, as in containers.
#include <gtest/gtest.h>
#include <lockstep/collectives/host/shared_memory.h>

#include <cstring>
#include <functional>
#include <string>

#include "thread_ranks.h"

namespace lockstep {
namespace {

using Memory = std::vector<std::shared_ptr<detail::SharedMemory>>;

constexpr int kRanks = 3;
constexpr size_t kBytes = 5000;

/// Shares memory among ranks that are threads. What rank `own` hears of rank `other`'s memory
/// passes through `heard`: the announcement, which begins with a path, and `own`'s announcement.
Memory share(Communicator& ranks,
             const std::function<void(char* announced, const char* own)>& heard) {
  return detail::share_among_processes(
      kBytes,
      {ranks.rank(), ranks.size(), [&](const void* own, size_t bytes, void* all) {
         const auto gathered = ranks.all_gather_bytes({static_cast<const char*>(own), bytes});
         for (size_t k = 0; k < gathered.size(); ++k) {
           char* const announced = static_cast<char*>(all) + k * bytes;
           std::memcpy(announced, gathered[k].data(), bytes);
           if (announced[0] == '/') {
             heard(announced, static_cast<const char*>(own));
           }
         }
       }});
}

void expect_each_reaches_all(Communicator& ranks, const Memory& memory) {
  ASSERT_EQ(memory.size(), size_t{kRanks});
  for (const auto& block : memory) {
    EXPECT_EQ(std::string(block->data(), block->bytes()), std::string(kBytes, '\0'));
  }
  ranks.barrier().wait();
  memory[static_cast<size_t>(ranks.rank())]->data()[kBytes - 1] =
      static_cast<char>('a' + ranks.rank());
  ranks.barrier().wait();
  for (int k = 0; k < kRanks; ++k) {
    EXPECT_EQ(memory[static_cast<size_t>(k)]->data()[kBytes - 1], 'a' + k) << "of rank " << k;
  }
  ranks.barrier().wait();
}

bool is_in_proc(const char* path) {
  return std::strncmp(path, "/proc/", 6) == 0;
}

TEST(SharedMemory, IsZeroAndReachesAllRanks) {
  testing::run_ranks(kRanks, [](Communicator& ranks) {
    expect_each_reaches_all(ranks, share(ranks, [](char*, const char*) {}));
  });
}

TEST(SharedMemory, OfAnotherProcessUnderThePeersNameIsNotTaken) {
  // As in PID namespaces of their own, where the process of each rank has the same number: the path
  // of a peer's memory is that of the own one.
  testing::run_ranks(kRanks, [](Communicator& ranks) {
    bool by_name = false;
    const Memory memory = share(ranks, [&](char* announced, const char* own) {
      by_name = by_name || !is_in_proc(announced);
      if (is_in_proc(announced)) {
        std::strcpy(announced, own);
      }
    });
    EXPECT_TRUE(by_name);  // there was another way
    expect_each_reaches_all(ranks, memory);
  });
}

TEST(SharedMemory, ThatOneRankCannotFindIsAnErrorOnEveryRank) {
  const auto outcomes = testing::outcomes(kRanks, [](Communicator& ranks) {
    share(ranks, [&](char* announced, const char* own) {
      if (ranks.rank() == 1) {
        std::strcpy(announced, own);
      }
    });
  });
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.kind, testing::RankOutcome::Kind::error);
    EXPECT_NE(outcome.message.find("start all ranks of a node in one container"), std::string::npos)
        << outcome.message;
  }
}

}  // namespace
}  // namespace lockstep
