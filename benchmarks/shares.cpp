// shares: times what sharded optimizers do with a bucket of 32 MB, ours and MPI's in turn: a
// reduce-scatter, which leaves each rank the sums of its share, and an all-gather of the shares.
#include <ATen/ATen.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/mpi_session.h>
#include <mpi.h>

#include <cstring>
#include <functional>
#include <iostream>
#include <vector>

#include "mpi_sum.h"
#include "recorder.h"

namespace lockstep::benchmarks {
namespace {

constexpr int64_t kBytes = 32 << 20;
constexpr int kWarmUp = 2;
constexpr int kCalls = 8;

struct Contender {
  Series series;
  at::Tensor bucket;
  std::function<void()> call;
  int expected;  // in the whole bucket or in the share
};

void compare(std::vector<Contender>& contenders, const Communicator& world) {
  for (int call = 0; call < kWarmUp + kCalls; ++call) {
    for (Contender& contender : contenders) {
      contender.bucket.fill_(1);
      MPI_Barrier(MPI_COMM_WORLD);
      if (call >= kWarmUp) {
        contender.series.begin();
      }
      contender.call();
      if (call >= kWarmUp) {
        contender.series.end();
      }
      const int64_t share = contender.bucket.numel() / world.size();
      const double found = contender.bucket[world.rank() * share + share / 2].item().toDouble();
      LOCKSTEP_CHECK(found == contender.expected, "rank ", world.rank(), ": found ", found,
                     ", not ", contender.expected);
    }
  }
}

void measure(const Communicator& world, const char* dtype_name, c10::ScalarType dtype) {
  const MpiSum mpi(dtype);
  const auto bytes = static_cast<int64_t>(c10::elementSize(dtype));
  const int64_t share = kBytes / bytes / world.size();
  const at::Tensor ours = world.allocate(share * world.size(), dtype);
  const at::Tensor own = ours.narrow(0, share * world.rank(), share);
  const at::Tensor theirs = at::empty_like(ours);
  const int count = static_cast<int>(share);
  const std::string name = dtype_name;
  std::vector<Contender> contenders = {
      {Series(name + " reduce_scatter", "ours"), ours,
       [&] { world.reduce_scatter(own, ours, ReduceOp::sum()).wait(); }, world.size()},
      {Series(name + " reduce_scatter", mpi.variant), theirs,
       [&] {
         void* data = theirs.data_ptr();
         MPI_Reduce_scatter_block(MPI_IN_PLACE, data, count, mpi.type, mpi.operation,
                                  MPI_COMM_WORLD);
         // MPI leaves the share at the beginning, where no weight of it is.
         std::memmove(static_cast<char*>(data) + world.rank() * share * bytes, data,
                      static_cast<size_t>(share * bytes));
       },
       world.size()},
      {Series(name + " all_gather", "ours"), ours, [&] { world.all_gather(ours, own).wait(); }, 1},
      {Series(name + " all_gather", "mpi"), theirs,
       [&] {
         MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, theirs.data_ptr(),
                       static_cast<int>(share * bytes), MPI_BYTE, MPI_COMM_WORLD);
       },
       1}};
  compare(contenders, world);
  for (const Contender& contender : contenders) {
    contender.series.write();
  }
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int, char** argv) {
  using namespace lockstep;
  try {
    const MpiSession session;
    const Communicator world = session.world();
    benchmarks::measure(world, "fp16", c10::ScalarType::Half);
    benchmarks::measure(world, "fp32", c10::ScalarType::Float);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << argv[0] << ": " << error.what() << "\n";
    return 1;
  }
}
