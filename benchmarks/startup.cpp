// startup ours|mpi: records the time from $LOCKSTEP_BENCH_BEGIN, when the harness started the
// launcher, until a Runtime, or MPI in a program that loads the same libraries, has all ranks.
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/runtime.h>
#include <mpi.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "recorder.h"

namespace lockstep::benchmarks {
namespace {

void measure(int argc, char** argv, double begin) {
  const std::string variant = argv[1];
  Series series("start", variant);
  series.begin_at(begin);
  if (variant == "ours") {
    const Runtime runtime(argc, argv);
    runtime.control().barrier().wait();
    series.end();
  } else {
    MPI_Init(nullptr, nullptr);
    MPI_Barrier(MPI_COMM_WORLD);
    series.end();
    MPI_Finalize();
  }
  series.write();
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  try {
    const char* begin = std::getenv("LOCKSTEP_BENCH_BEGIN");
    LOCKSTEP_CHECK(argc == 2 && begin != nullptr, "scripts/bench startup starts this program");
    lockstep::benchmarks::measure(argc, argv, std::stod(begin));
    return 0;
  } catch (const std::exception& error) {
    std::cerr << argv[0] << ": " << error.what() << "\n";
    return 1;
  }
}
