#include "shared_pair.h"

#include <fcntl.h>
#include <lockstep/collectives/check.h>
#include <mpi.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

namespace lockstep::benchmarks {
namespace {

/// Rank 0's memory file, open on both ranks.
int shared_file(int rank, size_t bytes) {
  std::array<int, 2> owner{};  // process, descriptor
  int file = -1;
  if (rank == 0) {
    file = memfd_create("lockstep-benchmark", MFD_CLOEXEC);
    if (file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) != 0) {
      file = -1;
    }
    owner = {getpid(), file};
  }
  MPI_Bcast(owner.data(), 2, MPI_INT, 0, MPI_COMM_WORLD);
  if (rank != 0 && owner[1] >= 0) {
    const std::string path =
        "/proc/" + std::to_string(owner[0]) + "/fd/" + std::to_string(owner[1]);
    file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  }
  return file;
}

}  // namespace

SharedPair::SharedPair(size_t bytes_per_rank) : bytes_per_rank_(bytes_per_rank) {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  LOCKSTEP_CHECK(size == 2, "this benchmark runs on 2 ranks, not ", size);
  const size_t bytes = flags_bytes + 2 * bytes_per_rank;
  const int file = shared_file(rank_, bytes);
  LOCKSTEP_CHECK(file >= 0, "rank ", rank_, ": no shared memory file: ", std::strerror(errno));
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  LOCKSTEP_CHECK(memory != MAP_FAILED, "rank ", rank_, ": mmap: ", std::strerror(errno));
  memory_ = static_cast<char*>(memory);
  std::memset(buffer(rank_), 0, bytes_per_rank);
  MPI_Barrier(MPI_COMM_WORLD);
  close(file);
}

SharedPair::~SharedPair() {
  munmap(memory_, flags_bytes + 2 * bytes_per_rank_);
}

void SharedPair::barrier() {
  arrivals(rank_).store(++barriers_, std::memory_order_release);
  while (arrivals(1 - rank_).load(std::memory_order_acquire) < barriers_) {
  }
}

}  // namespace lockstep::benchmarks
