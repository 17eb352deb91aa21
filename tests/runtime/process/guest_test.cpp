// A program that owns MPI and makes lockstep a guest in it.
#include <gmock/gmock.h>
#include <lockstep/runtime/trainer.h>
#include <malloc.h>
#include <mpi.h>
#include <torch/torch.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>

#include "error_of.h"
#include "ranks.h"
#include "test_names.h"

namespace lockstep {
namespace {

RuntimeOptions on_the_host() {
  return RuntimeOptions().device(DeviceKind::cpu).seed(3);
}

int rank_in_world() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int size_of_world() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

/// The loss before and after a few updates.
std::pair<double, double> train(Runtime& runtime) {
  torch::nn::Linear model(3, 1);
  Trainer trainer(runtime, model, SGD(0.1));
  const torch::Tensor x = torch::randn({16, 3}), y = x.sum(1, true);
  std::pair<double, double> losses;
  for (int update = 0; update < 20; ++update) {
    const double loss = trainer.step([&] { return torch::mse_loss(model(x), y); }).loss();
    (update == 0 ? losses.first : losses.second) = loss;
  }
  return losses;
}

class Communicators {
 public:
  /// Ranks with an equal color.
  explicit Communicators(int color) {
    MPI_Comm_split(MPI_COMM_WORLD, color, rank_in_world(), &part_);
  }
  ~Communicators() { MPI_Comm_free(&part_); }
  MPI_Comm part() const { return part_; }

 private:
  MPI_Comm part_ = MPI_COMM_NULL;
};

void count_error(MPI_Comm* /*comm*/, int* /*code*/, ...) {}

MPI_Errhandler handler_of(MPI_Comm comm) {
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  MPI_Comm_get_errhandler(comm, &handler);
  return handler;
}

TEST(GuestRuntime, LeavesTheErrorHandlersOfTheProgram) {
  const Communicators parts(0);
  MPI_Errhandler own = MPI_ERRHANDLER_NULL;
  MPI_Comm_create_errhandler(count_error, &own);
  MPI_Comm_set_errhandler(parts.part(), own);
  {
    Runtime runtime(parts.part(), on_the_host());
    EXPECT_EQ(handler_of(parts.part()), own);
    EXPECT_EQ(handler_of(MPI_COMM_WORLD), MPI_ERRORS_ARE_FATAL);
    train(runtime);
  }
  EXPECT_EQ(handler_of(parts.part()), own);
  EXPECT_EQ(handler_of(MPI_COMM_WORLD), MPI_ERRORS_ARE_FATAL);
  MPI_Errhandler_free(&own);
}

std::map<int, void (*)(int)> signal_dispositions() {
  std::map<int, void (*)(int)> found;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGSEGV, SIGFPE, SIGPIPE}) {
    struct sigaction action = {};
    sigaction(signal, nullptr, &action);
    found[signal] = action.sa_handler;
  }
  return found;
}

/// Whether malloc takes a block of 64 MiB from the system and gives it back, as it does by default.
bool malloc_maps_big_blocks() {
  const size_t before = mallinfo2().hblks;
  void* volatile block = std::malloc(size_t{64} << 20);
  const bool is_mapped = mallinfo2().hblks > before;
  std::free(block);
  return is_mapped;
}

TEST(GuestRuntime, LeavesSignalsMallocThreadsAndSettingsOfTheProgram) {
  const auto signals = signal_dispositions();
  at::set_num_threads(2);
  at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
#ifndef __SANITIZE_ADDRESS__  // which has a malloc of its own
  ASSERT_TRUE(malloc_maps_big_blocks());
#endif
  {
    Runtime runtime(MPI_COMM_WORLD, on_the_host().deterministic(true));
    EXPECT_EQ(runtime.threads(), 2);
    EXPECT_EQ(signal_dispositions(), signals);
    EXPECT_TRUE(malloc_maps_big_blocks());
    EXPECT_FALSE(at::globalContext().deterministicAlgorithmsWarnOnly());
    train(runtime);
  }
  {
    Runtime runtime(MPI_COMM_WORLD, on_the_host().threads(1));
    EXPECT_EQ(at::get_num_threads(), 1);
  }
  EXPECT_EQ(at::get_num_threads(), 2);
  EXPECT_EQ(signal_dispositions(), signals);
  EXPECT_TRUE(malloc_maps_big_blocks());
  EXPECT_TRUE(at::globalContext().deterministicAlgorithmsWarnOnly());
  at::globalContext().setDeterministicAlgorithms(false, false);
}

TEST(GuestRuntime, PutsBackTheRandomNumbersOfTheProgram) {
  at::manual_seed(11);
  at::rand({5});
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const torch::Tensor state = generator.get_state();
  const torch::Tensor expected = at::rand({4});
  generator.set_state(state);
  {
    Runtime runtime(MPI_COMM_WORLD, on_the_host());
    train(runtime);
  }
  EXPECT_TRUE(at::equal(at::rand({4}), expected));
}

TEST(GuestRuntime, HasTheRanksOfItsCommunicatorInTheirOrder) {
  MPI_Comm reversed = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, 0, -rank_in_world(), &reversed);
  {
    Runtime runtime(reversed, on_the_host());
    EXPECT_EQ(runtime.size(), size_of_world());
    EXPECT_EQ(runtime.rank(), size_of_world() - 1 - rank_in_world());
  }
  MPI_Comm_free(&reversed);
}

TEST(GuestRuntime, SomeRanksTrainWhileOthersGoOnWithTheirOwnWork) {
  const bool trains = rank_in_world() > 0;
  const Communicators parts(trains ? 1 : 0);
  int token = 0;
  if (trains) {
    Runtime runtime(parts.part(), on_the_host());
    EXPECT_EQ(runtime.size(), size_of_world() - 1);
    const auto [first, last] = train(runtime);
    EXPECT_LT(last, first);
    MPI_Send(&token, 1, MPI_INT, 0, 7, MPI_COMM_WORLD);
  } else {
    for (int rank = 1; rank < size_of_world(); ++rank) {
      MPI_Recv(&token, 1, MPI_INT, rank, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
  }
}

TEST(GuestRuntime, SeveralLiveAtOnceAndOneAfterAnother) {
  for (int round = 0; round < 3; ++round) {
    Runtime all(MPI_COMM_WORLD, on_the_host());
    Runtime alone(MPI_COMM_SELF, on_the_host());
    EXPECT_EQ(alone.size(), 1);
    torch::nn::Linear shared(2, 1), own(2, 1);
    Trainer with_all(all, shared, SGD(0.1));
    Trainer by_itself(alone, own, SGD(0.1));
    const torch::Tensor x = torch::randn({8, 2});
    for (int update = 0; update < 3; ++update) {
      with_all.step([&] { return shared(x).square().mean(); });
      by_itself.step([&] { return own(x).square().mean(); });
    }
    EXPECT_NE(shared->weight.sum().item<double>(), own->weight.sum().item<double>());
  }
}

TEST(GuestRuntime, TakesAHandleOfFortran) {
  Runtime runtime(MpiCommHandle::from_fortran(MPI_Comm_c2f(MPI_COMM_WORLD)), on_the_host());
  EXPECT_EQ(runtime.rank(), rank_in_world());
}

TEST(GuestRuntime, RefusesNoCommunicatorAndOneOfAnotherLibrary) {
  EXPECT_THAT(error_of([] { Runtime(MPI_COMM_NULL, on_the_host()); }),
              HasSubstr("the program passed MPI_COMM_NULL"));
  if (sizeof(MPI_Comm) != sizeof(int)) {
    EXPECT_THAT(error_of([] { Runtime(1140850688, on_the_host()); }),
                HasSubstr("MpiCommHandle::from_fortran"));
  }
}

/// Sets variables of the environment while it lives.
class Environment {
 public:
  explicit Environment(const std::map<std::string, const char*>& values) {
    for (const auto& [name, value] : values) {
      const char* found = std::getenv(name.c_str());
      before_[name] = found ? std::make_unique<std::string>(found) : nullptr;
      value ? setenv(name.c_str(), value, 1) : unsetenv(name.c_str());
    }
  }
  ~Environment() {
    for (const auto& [name, value] : before_) {
      value ? setenv(name.c_str(), value->c_str(), 1) : unsetenv(name.c_str());
    }
  }

 private:
  std::map<std::string, std::unique_ptr<std::string>> before_;
};

TEST(GuestRuntime, AWorldThatIsUpIsNeverRefusedWhateverTheEnvironmentSays) {
  const Environment srun_without_pmi({{"OMPI_COMM_WORLD_SIZE", nullptr},
                                      {"PMIX_RANK", nullptr},
                                      {"PMI_RANK", nullptr},
                                      {"PMI_SIZE", nullptr},
                                      {"SLURM_PROCID", "0"},
                                      {"SLURM_STEP_NUM_TASKS", "64"},
                                      {"SLURM_NTASKS", "64"}});
  {
    Runtime guest(MPI_COMM_WORLD, on_the_host());
    EXPECT_EQ(guest.size(), size_of_world());
  }
  Runtime of_the_world(0, nullptr, on_the_host());
  EXPECT_EQ(of_the_world.size(), size_of_world());
  EXPECT_EQ(handler_of(MPI_COMM_WORLD), MPI_ERRORS_ARE_FATAL);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::testing::init_tests(&argc, argv);
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  at::manual_seed(1);
  const int result =
      lockstep::testing::run_tests(lockstep::rank_in_world(), lockstep::size_of_world());
  MPI_Finalize();
  return result;
}
