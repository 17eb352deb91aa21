#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/host/host_transport.h>
#include <lockstep/collectives/impl/activity.h>
#include <lockstep/collectives/impl/life_sign.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <thread>

#include <ATen/Parallel.h>

#include "verbs.h"

namespace lockstep {

using namespace detail;

namespace {

constexpr int kRanks = 3;

/// Memory and a barrier that this process and its children share from birth.
struct Family {
  pthread_barrier_t barrier;
  std::atomic<bool> is_stopped = false;
  char message[kRanks][256];

  static Family& make() {
    void* memory =
        mmap(nullptr, sizeof(Family), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    Family& family = *new (memory) Family;
    pthread_barrierattr_t attributes;
    pthread_barrierattr_init(&attributes);
    pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&family.barrier, &attributes, kRanks);
    return family;
  }

  void gather(int rank, const void* own, size_t bytes, void* all) {
    std::memcpy(message[rank], own, bytes);
    pthread_barrier_wait(&barrier);
    for (int k = 0; k < kRanks; ++k) {
      std::memcpy(static_cast<char*>(all) + static_cast<size_t>(k) * bytes, message[k], bytes);
    }
    pthread_barrier_wait(&barrier);
  }
};

CommunicatorOptions options;

/// The collectives among processes, without MPI.
class ProcessTransport final : public HostTransport {
 public:
  ProcessTransport(Family& family, int rank) : HostTransport(engine_of(family, rank)) {}
  const char* name() const override { return "process"; }

 private:
  static std::vector<std::shared_ptr<SharedMemory>> share(Family& family, int rank, size_t bytes) {
    return share_among_processes(
        bytes, {rank, kRanks, [&family, rank](const void* own, size_t n, void* all) {
                  family.gather(rank, own, n, all);
                }});
  }
  static std::shared_ptr<NodeEngine> engine_of(Family& family, int rank) {
    auto group = std::make_unique<NodeGroup>(share(family, rank, NodeGroup::block_bytes()), rank,
                                             NodeGroup::Peers::processes);
    pthread_barrier_wait(&family.barrier);
    group->watch_peers();
    return std::make_shared<NodeEngine>(NodeEngine::World{rank, kRanks, {0, 1, 2}, {4, 5, 6}},
                                        std::move(group), options);
  }
  std::shared_ptr<Transport> split_ranks(const std::vector<SplitWish>&) override { return nullptr; }
  std::vector<std::shared_ptr<SharedMemory>> share_memory(size_t) override { return {}; }
};

class Processes : public ::testing::Test {
 protected:
  /// Runs `body` as ranks 1 and 2 in children and as rank 0 here.
  template <class Body>
  void run(Body body) {
    at::set_num_threads(1);  // children have no copies of OpenMP's threads
    Family& family = Family::make();
    family_ = &family;
    for (int rank = 1; rank < kRanks; ++rank) {
      children_.push_back(fork());
      if (children_.back() == 0) {
        try {
          Communicator own(std::make_shared<ProcessTransport>(family, rank));
          body(own);
        } catch (const std::exception&) {
          _exit(9);
        }
        _exit(::testing::Test::HasFailure() ? 1 : 0);
      }
    }
    Communicator own(std::make_shared<ProcessTransport>(family, 0));
    body(own);
  }

  Family& family() const { return *family_; }
  pid_t child(int rank) const { return children_[static_cast<size_t>(rank - 1)]; }

  int status_of(int rank) {
    int status = 0;
    waitpid(children_[static_cast<size_t>(rank - 1)], &status, 0);
    return status;
  }

 private:
  Family* family_ = nullptr;
  std::vector<pid_t> children_;
};

TEST_F(Processes, ReduceThroughSharedMemory) {
  run([](Communicator& ranks) {
    for (int64_t numel : {10, 300001}) {
      testing::check_all_reduce(ranks, numel, at::kHalf, ReduceOp::avg(), /*in_window=*/false);
      testing::check_all_gather(ranks, numel, at::kFloat);
    }
    ranks.barrier().wait();
  });
  EXPECT_EQ(status_of(1), 0);
  EXPECT_EQ(status_of(2), 0);
}

TEST_F(Processes, AStoppedOneIsNamedAsStopped) {
  std::string message;
  options.timeout = std::chrono::seconds(2);
  run([&](Communicator& ranks) {
    ranks.barrier().wait();
    if (ranks.rank() == 2) {
      note_activity("forward of micro-batch", 7);
      raise(SIGSTOP);
      _exit(0);
    }
    if (ranks.rank() == 0) {
      int status = 0;
      waitpid(child(2), &status, WUNTRACED);
      EXPECT_TRUE(WIFSTOPPED(status));
      family().is_stopped = true;
    }
    while (!family().is_stopped) {  // rank 1 must not time out before rank 0
      std::this_thread::yield();
    }
    try {
      const CallLabel label("bucket", 4);
      ranks.all_reduce(at::zeros({50000})).wait();
    } catch (const CommunicationError& error) {
      message = error.what();
    }
    if (ranks.rank() == 1) {
      pause();  // a rank that is gone would be named, too
    }
  });
  options = {};
  kill(child(1), SIGKILL);
  kill(child(2), SIGKILL);
  EXPECT_NE(message.find("all_reduce #2 of Float[50000], sum (bucket 4)"), std::string::npos);
  EXPECT_NE(message.find("rank 2 did not arrive (its last call was #1)"), std::string::npos);
  EXPECT_NE(message.find("in forward of micro-batch 7 for "), std::string::npos) << message;
  EXPECT_NE(message.find("stopped by a signal or a debugger"), std::string::npos) << message;
  EXPECT_EQ(WTERMSIG(status_of(1)), SIGKILL);
  EXPECT_EQ(WTERMSIG(status_of(2)), SIGKILL);
}

TEST_F(Processes, AKilledOneIsNoticedByTheOthers) {
  const auto start = std::chrono::steady_clock::now();
  std::string message;
  run([&](Communicator& ranks) {
    ranks.barrier().wait();
    if (ranks.rank() == 2) {
      raise(SIGKILL);  // stays a zombie until status_of(): dead, though its pid still exists
    }
    try {
      ranks.all_reduce(at::zeros({50000})).wait();
    } catch (const CommunicationError& error) {
      message = error.what();
    }
    if (ranks.rank() == 1) {
      _exit(message.empty() ? 1 : 20);
    }
  });
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  EXPECT_NE(message.find("all_reduce #2 of Float[50000]"), std::string::npos) << message;
  EXPECT_NE(message.find("has died or left"), std::string::npos) << message;
  EXPECT_EQ(WEXITSTATUS(status_of(1)), 20);
  EXPECT_EQ(WTERMSIG(status_of(2)), SIGKILL);
}

TEST_F(Processes, TellTheLauncherWhichRankOfTheJobTheyMissWithoutItsWords) {
  std::array<int, 2> sockets = {};
  struct stat info = {};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, sockets.data()), 0);
  ASSERT_EQ(fstat(sockets[1], &info), 0);
  std::array<int, 2> arrivals = {};  // of rank 1, for each of the others
  ASSERT_EQ(pipe(arrivals.data()), 0);
  run([&](Communicator& ranks) {
    ranks.barrier().wait();
    const at::Tensor tensor = at::zeros({50000});
    const auto reduce = [&] {
      Work work = ranks.all_reduce(tensor);
      if (ranks.rank() == 1) {
        EXPECT_EQ(write(arrivals[1], "12", 2), 2);
      }
      work.wait();
    };
    char arrival = 0;
    if (ranks.rank() != 1) {
      EXPECT_EQ(read(arrivals[0], &arrival, 1), 1);
    }
    if (ranks.rank() == 2) {
      raise(SIGKILL);
    }
    if (ranks.rank() == 0) {
      const std::string name = std::to_string(sockets[1]) + ":" + std::to_string(info.st_ino);
      setenv("LOCKSTEP_LIFE_SIGNS", name.c_str(), /*overwrite=*/1);
    }
    EXPECT_THROW(reduce(), CommunicationError);
    if (ranks.rank() == 1 && !HasFailure()) {
      pause();  // a rank that is gone would be named, too
    }
  });
  unsetenv("LOCKSTEP_LIFE_SIGNS");
  kill(child(1), SIGKILL);
  std::array<char, 4096> bytes = {};
  ASSERT_GT(read(sockets[0], bytes.data(), bytes.size() - 1), 1);
  EXPECT_EQ(bytes[0], static_cast<char>(LifeSign::waited));
  const WaitSign sign = parse_wait_sign(bytes.data() + 1);
  EXPECT_EQ(sign.ranks, std::vector<int>{6});
  EXPECT_EQ(sign.collective, "all_reduce #2 of Float[50000], sum\n");
  EXPECT_EQ(WTERMSIG(status_of(1)), SIGKILL);
  EXPECT_EQ(WTERMSIG(status_of(2)), SIGKILL);
  for (const int descriptor : {sockets[0], sockets[1], arrivals[0], arrivals[1]}) {
    close(descriptor);
  }
}

}  // namespace
}  // namespace lockstep
