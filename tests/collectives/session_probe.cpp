// A program for session_test.cpp. Prints what it found; the exit code is that of the error.
//   session_probe size            the world
//   session_probe twice           a second session in the same process
//   session_probe again           a second session after the first
//   session_probe kill            rank 1 dies by SIGKILL while all ranks reduce
//   session_probe throw           rank 1 throws through the session while all ranks reduce
//   session_probe outlive         a communicator that is used after its session is gone
//   session_probe failed          a second session after a collective of the first has failed
//   session_probe launched        the world of a rank that `lockstep run` has started
//   session_probe guest-leaves    a guest leaves, and the program goes on with MPI
//   session_probe guest-fails     the same where MPI fails while the guest leaves
//   session_probe level-NAME      the world where the program itself has started MPI: single,
//                                 funneled, serialized, multiple; mixed: funneled on rank 1, else
//                                 multiple
#include <ATen/ops/ones.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/mpi_session.h>
#include <mpi.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>

namespace {

bool gather_fails = false;

}  // namespace

/// As MPI does when it fails: calls the communicator's error handler, then returns the error.
extern "C" int MPI_Allgather(const void* in, int sent, MPI_Datatype type, void* out, int received,
                             MPI_Datatype out_type, MPI_Comm comm) {
  if (gather_fails) {
    MPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
    return MPI_ERR_OTHER;
  }
  return PMPI_Allgather(in, sent, type, out, received, out_type, comm);
}

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

/// Takes the place of the launcher of `lockstep run`: the socket where its signs arrive.
int launchers_end() {
  int sockets[2] = {-1, -1};
  struct stat info = {};
  socketpair(AF_UNIX, SOCK_STREAM, 0, sockets);
  fstat(sockets[1], &info);
  const std::string place = std::to_string(sockets[1]) + ":" + std::to_string(info.st_ino);
  setenv("LOCKSTEP_LIFE_SIGNS", place.c_str(), /*overwrite=*/1);
  return sockets[0];
}

/// The guest of a program that goes on without it.
void leave_as_guest(bool fails) {
  start_mpi("multiple");
  const int launcher = launchers_end();
  {
    MpiSession guest(MPI_COMM_WORLD, {});
    gather_fails = fails;
    try {
      for (const std::string& bytes : guest.leave_with("bytes")) {
        std::printf("gathered %s\n", bytes.c_str());
      }
    } catch (const lockstep::CommunicationError& error) {
      std::printf("%s\n", error.what());
    }
    gather_fails = false;
  }
  char sign = 0;
  const bool none = recv(launcher, &sign, 1, MSG_DONTWAIT) < 0;
  std::printf("signs for the launcher: %s\n", none ? "none" : std::string(1, sign).c_str());
  int finalized = 1;
  MPI_Finalized(&finalized);
  MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
  MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler);
  int ranks = 1;
  MPI_Allreduce(MPI_IN_PLACE, &ranks, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  std::printf("%d ranks go on with MPI %s, its errors are %s\n", ranks,
              finalized == 0 ? "up" : "finalised",
              handler == MPI_ERRORS_ARE_FATAL ? "fatal as before" : "handled in another way");
  std::fflush(stdout);
  MPI_Finalize();
}

void run(const char* mode) {
  const std::string level = mode;
  if (level.rfind("guest-", 0) == 0) {
    return leave_as_guest(level == "guest-fails");
  }
  if (level.rfind("level-", 0) == 0) {
    start_mpi(level.substr(6));
  }
  if (level == "launched") {
    launchers_end();
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
  } else if (std::strcmp(mode, "failed") == 0) {
    session->failure_mark()();
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
