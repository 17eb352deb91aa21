// Who is there: ranks, a message from each, and one all-reduce.
//
//   lockstep run -n 2 -- build/examples/01_hello_ranks        (or mpirun -n 2, or no launcher)
//
// Expected on 2 ranks:
//   hello from rank 0 of 2
//   hello from rank 1 of 2
//   the ranks' numbers sum to 1 on every rank

#include <ATen/ATen.h>
#include <lockstep/lockstep.h>

#include <iostream>

int main(int argc, char** argv) {
  return lockstep::run(argc, argv, [](lockstep::Runtime& runtime) {
    const std::string mine = "hello from rank " + std::to_string(runtime.rank()) + " of " +
                             std::to_string(runtime.size());
    lockstep::Communicator control = runtime.control();
    for (const std::string& message : control.all_gather_bytes(mine)) {
      if (runtime.is_main()) {
        std::cout << message << "\n";
      }
    }

    lockstep::Communicator world = runtime.communicator();
    const at::Tensor sum = at::full({1}, runtime.rank(), at::kFloat).to(runtime.device());
    world.all_reduce(sum).wait();
    const int64_t expected = int64_t{runtime.size()} * (runtime.size() - 1) / 2;
    LOCKSTEP_CHECK(sum.item<int64_t>() == expected, "rank ", runtime.rank(), ": the sum is ",
                   sum.item<int64_t>(), ", expected ", expected);
    if (runtime.is_main()) {
      std::cout << "the ranks' numbers sum to " << expected << " on every rank\n";
    }
  });
}
