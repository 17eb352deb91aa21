// A program for session_test.cpp. Prints what it found; the exit code is that of the error.
//   session_probe size            the world
//   session_probe twice           a second session in the same process
//   session_probe again           a second session after the first
//   session_probe kill            rank 1 dies by SIGKILL while all ranks reduce
//   session_probe throw           rank 1 throws through the session while all ranks reduce
//   session_probe outlive         a communicator that is used after its session is gone
//   session_probe level-NAME      the world where the program itself has started MPI: single,
//   funneled,
//                                 serialized, multiple; mixed: funneled on rank 1, else multiple
#include <ATen/ops/ones.h>
#include <lockstep/collectives/mpi_session.h>
#include <mpi.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

namespace {

using lockstep::Communicator;
using lockstep::MpiSession;

void reduce_until(Communicator& world, const char* end) {
  const at::Tensor window = world.allocate(100000, at::kFloat);
  for (int step = 0; step < 1000000; ++step) {
    if (world.rank() == 1 && step == 100 && std::strcmp(end, "kill") == 0) {
      raise(SIGKILL);
    }
    if (world.rank() == 1 && step == 100) {
      throw std::runtime_error("rank 1 has had enough");
    }
    world.all_reduce(window).wait();
  }
}

void start_mpi(const std::string& level) {
  int provided = MPI_THREAD_SINGLE;
  int rank = 0;
  if (const char* text = std::getenv("OMPI_COMM_WORLD_RANK")) {
    rank = std::atoi(text);
  }
  const int wanted = level == "single"               ? MPI_THREAD_SINGLE
                     : level == "funneled"           ? MPI_THREAD_FUNNELED
                     : level == "serialized"         ? MPI_THREAD_SERIALIZED
                     : level == "mixed" && rank == 1 ? MPI_THREAD_FUNNELED
                                                     : MPI_THREAD_MULTIPLE;
  MPI_Init_thread(nullptr, nullptr, wanted, &provided);
}

void run(const char* mode) {
  const std::string level = mode;
  if (level.rfind("level-", 0) == 0) {
    start_mpi(level.substr(6));
  }
  std::optional<MpiSession> session(std::in_place);
  Communicator world = session->world();
  std::printf("rank %d of %d by %s, MPI '%s'\n", world.rank(), world.size(),
              world.transport_name().c_str(), session->library_version().substr(0, 8).c_str());
  std::fflush(stdout);
  if (std::strcmp(mode, "twice") == 0) {
    MpiSession second;
  } else if (std::strcmp(mode, "again") == 0) {
    session.reset();
    MpiSession second;
  } else if (std::strcmp(mode, "kill") == 0 || std::strcmp(mode, "throw") == 0) {
    reduce_until(world, mode);
  } else if (std::strcmp(mode, "outlive") == 0) {
    session.reset();
    const at::Tensor ones = at::ones({10});
    world.all_reduce(ones).wait();
    std::printf("sum %g\n", ones[9].item<double>());
  }
  session.reset();
  if (level.rfind("level-", 0) == 0) {
    MPI_Finalize();
  }
}

}  // namespace

int main(int argc, char** argv) {
  try {
    run(argc > 1 ? argv[1] : "size");
    return 0;
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
