// The collective calls that a guest makes while it starts: those to MPI, which are counted under
// MPI's profiling names, and those of its communicator.
#include <gmock/gmock.h>
#include <lockstep/runtime/runtime.h>
#include <mpi.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "ranks.h"
#include "test_names.h"

namespace {

struct Call {
  std::string name;
  MPI_Comm comm;
};
std::vector<Call> calls;  // of this rank, on the thread that makes a Runtime

}  // namespace

extern "C" {
int MPI_Comm_dup(MPI_Comm comm, MPI_Comm* made) {
  calls.push_back({"MPI_Comm_dup", comm});
  return PMPI_Comm_dup(comm, made);
}
int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm* made) {
  calls.push_back({"MPI_Comm_split", comm});
  return PMPI_Comm_split(comm, color, key, made);
}
int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* made) {
  calls.push_back({"MPI_Comm_split_type", comm});
  return PMPI_Comm_split_type(comm, type, key, info, made);
}
int MPI_Barrier(MPI_Comm comm) {
  calls.push_back({"MPI_Barrier", comm});
  return PMPI_Barrier(comm);
}
int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  calls.push_back({"MPI_Ibarrier", comm});
  return PMPI_Ibarrier(comm, request);
}
int MPI_Bcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm) {
  calls.push_back({"MPI_Bcast", comm});
  return PMPI_Bcast(data, count, type, root, comm);
}
int MPI_Ibcast(void* data, int count, MPI_Datatype type, int root, MPI_Comm comm,
               MPI_Request* request) {
  calls.push_back({"MPI_Ibcast", comm});
  return PMPI_Ibcast(data, count, type, root, comm, request);
}
int MPI_Allreduce(const void* in, void* out, int count, MPI_Datatype type, MPI_Op op,
                  MPI_Comm comm) {
  calls.push_back({"MPI_Allreduce", comm});
  return PMPI_Allreduce(in, out, count, type, op, comm);
}
int MPI_Allgather(const void* in, int sent, MPI_Datatype type, void* out, int received,
                  MPI_Datatype out_type, MPI_Comm comm) {
  calls.push_back({"MPI_Allgather", comm});
  return PMPI_Allgather(in, sent, type, out, received, out_type, comm);
}
int MPI_Iallgather(const void* in, int sent, MPI_Datatype type, void* out, int received,
                   MPI_Datatype out_type, MPI_Comm comm, MPI_Request* request) {
  calls.push_back({"MPI_Iallgather", comm});
  return PMPI_Iallgather(in, sent, type, out, received, out_type, comm, request);
}
int MPI_Allgatherv(const void* in, int sent, MPI_Datatype type, void* out, const int* received,
                   const int* places, MPI_Datatype out_type, MPI_Comm comm) {
  calls.push_back({"MPI_Allgatherv", comm});
  return PMPI_Allgatherv(in, sent, type, out, received, places, out_type, comm);
}
}

namespace lockstep {
namespace {

RuntimeOptions on_the_host() {
  return RuntimeOptions().device(DeviceKind::cpu).seed(3);
}

/// What a start has called, on the communicators of MPI and on the Runtime's own.
struct Start {
  std::vector<std::string> mpi;
  std::vector<std::string> own;
};

/// The start of the Runtime that `make` returns.
template <typename Make>
Start start_of(const Make& make) {
  calls.clear();
  const Runtime runtime = make();
  Start start;
  for (const Call& call : calls) {
    start.mpi.push_back(call.name);
  }
  std::istringstream log(runtime.communicator().collective_log());
  for (std::string line; std::getline(log, line);) {
    start.own.push_back(line.substr(0, line.rfind(", issued")));  // without the age
  }
  return start;
}

TEST(GuestStart, MakesTheCollectiveCallsOfANormalStartAndNoOther) {
  const Start normal = start_of([] { return Runtime(0, nullptr, on_the_host()); });
  const Start guest = start_of([] { return Runtime(MPI_COMM_WORLD, on_the_host()); });
  ASSERT_THAT(normal.mpi, Contains("MPI_Comm_dup"));
  EXPECT_EQ(guest.mpi, normal.mpi);
  EXPECT_EQ(guest.own, normal.own);
}

TEST(GuestStart, CallsTheProgramsCommunicatorOnceToDuplicateIt) {
  MPI_Comm part = MPI_COMM_NULL;
  MPI_Comm_dup(MPI_COMM_WORLD, &part);
  start_of([&] { return Runtime(part, on_the_host()); });
  std::vector<std::string> on_the_programs;
  for (const Call& call : calls) {
    ASSERT_NE(call.comm, MPI_COMM_WORLD) << call.name;
    if (call.comm == part) {
      on_the_programs.push_back(call.name);
    }
  }
  EXPECT_EQ(on_the_programs, std::vector<std::string>{"MPI_Comm_dup"});
  MPI_Comm_free(&part);
}

// The environment that Cray's srun leaves behind: PALS_ and SLURM_, but nothing of PMI or Open MPI.
TEST(GuestStart, TakesAWorldThatCraysLauncherStarted) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE"}) {
    unsetenv(name);
  }
  int rank = 0, ranks = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  for (const char* name : {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}) {
    setenv(name, std::to_string(ranks).c_str(), 1);
  }
  for (const char* name : {"SLURM_PROCID", "PALS_RANKID"}) {
    setenv(name, std::to_string(rank).c_str(), 1);
  }
  EXPECT_EQ(Runtime(MPI_COMM_WORLD, on_the_host()).size(), ranks);
  EXPECT_EQ(Runtime(0, nullptr, on_the_host()).size(), ranks);
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  lockstep::testing::init_tests(&argc, argv);
  int level = 0, rank = 0, ranks = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  const int result = lockstep::testing::run_tests(rank, ranks);
  MPI_Finalize();
  return result;
}
