#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/mpi_comm.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>

namespace lockstep::detail {
namespace {

std::string mpi_words(int code) {
  char words[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, words, &length);
  return std::string(words, static_cast<size_t>(length));
}

}  // namespace

void check_mpi(int code, const char* call) {
  if (code != MPI_SUCCESS) {
    throw CommunicationError(c10::str(call, " failed: ", mpi_words(code)));
  }
}

MPI_Comm program_comm(const MpiCommHandle& handle) {
  MPI_Comm comm = MPI_COMM_NULL;
  if (handle.is_fortran()) {
    comm = MPI_Comm_f2c(static_cast<MPI_Fint>(handle.bits()));
  } else {
    LOCKSTEP_CHECK(handle.bytes() == sizeof(MPI_Comm), "the program passed a communicator of ",
                   handle.bytes(),
                   " bytes, but an MPI_Comm of the MPI library that lockstep was built with has ",
                   sizeof(MPI_Comm),
                   "; build both with the same MPI library, and pass a handle "
                   "of Fortran through MpiCommHandle::from_fortran");
    const uint64_t bits = handle.bits();
    std::memcpy(&comm, &bits, sizeof(MPI_Comm));
  }
  LOCKSTEP_CHECK(comm != MPI_COMM_NULL,
                 "the program passed MPI_COMM_NULL; only the ranks that belong to a communicator "
                 "construct lockstep on it");
  return comm;
}

ReturnedErrors::ReturnedErrors(MPI_Comm comm) : comm_(comm) {
  check_mpi(MPI_Comm_get_errhandler(comm_, &before_), "MPI_Comm_get_errhandler");
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

ReturnedErrors::~ReturnedErrors() {
  MPI_Comm_set_errhandler(comm_, before_);
  MPI_Errhandler_free(&before_);
}

MpiComm MpiComm::duplicate(MPI_Comm comm) {
  const ReturnedErrors returned(comm);
  MPI_Comm copy = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(comm, &copy), "MPI_Comm_dup");
  MpiComm result(copy);
  check_mpi(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return result;
}

MpiComm MpiComm::split(MPI_Comm comm, int color, int key) {
  MPI_Comm part = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(comm, color, key, &part), "MPI_Comm_split");
  MpiComm result(part);
  if (result.valid()) {
    check_mpi(MPI_Comm_set_errhandler(part, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  }
  return result;
}

MpiComm MpiComm::node_of(MPI_Comm comm) {
  int rank = 0;
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  MPI_Comm node = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node),
            "MPI_Comm_split_type");
  MpiComm result(node);
  check_mpi(MPI_Comm_set_errhandler(node, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return result;
}

MpiComm::~MpiComm() {
  int finalized = 0;
  if (valid() && MPI_Finalized(&finalized) == MPI_SUCCESS && finalized == 0) {
    MPI_Comm_free(&comm_);
  }
}

MpiComm::MpiComm(MpiComm&& other) noexcept : comm_(std::exchange(other.comm_, MPI_COMM_NULL)) {}

MpiComm& MpiComm::operator=(MpiComm&& other) noexcept {
  std::swap(comm_, other.comm_);
  return *this;
}

int MpiComm::rank() const {
  int rank = 0;
  check(MPI_Comm_rank(comm_, &rank), "MPI_Comm_rank");
  return rank;
}

int MpiComm::size() const {
  int size = 0;
  check(MPI_Comm_size(comm_, &size), "MPI_Comm_size");
  return size;
}

std::vector<int> MpiComm::job_ranks() const {
  MPI_Group own = MPI_GROUP_NULL;
  MPI_Group all = MPI_GROUP_NULL;
  check(MPI_Comm_group(comm_, &own), "MPI_Comm_group");
  check(MPI_Comm_group(MPI_COMM_WORLD, &all), "MPI_Comm_group");
  std::vector<int> ranks(static_cast<size_t>(size()));
  std::vector<int> job_ranks(ranks.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  check(MPI_Group_translate_ranks(own, size(), ranks.data(), all, job_ranks.data()),
        "MPI_Group_translate_ranks");
  MPI_Group_free(&own);
  MPI_Group_free(&all);
  const bool all_known =
      std::find(job_ranks.begin(), job_ranks.end(), MPI_UNDEFINED) == job_ranks.end();
  return all_known ? job_ranks : std::vector<int>();
}

void MpiComm::check(int code, const char* call) const {
  if (code != MPI_SUCCESS) {
    int rank = -1;
    int size = 0;
    MPI_Comm_rank(comm_, &rank);
    MPI_Comm_size(comm_, &size);
    throw CommunicationError(c10::str("rank ", rank, " of ", size, ": ", call, " failed: ",
                                      mpi_words(code), "; restart from the last snapshot"));
  }
}

void MpiComm::all_gather(const void* own, size_t bytes, void* all) const {
  const int count = static_cast<int>(bytes);
  check(MPI_Allgather(own, count, MPI_BYTE, all, count, MPI_BYTE, comm_), "MPI_Allgather");
}

bool MpiComm::all_agree(bool own) const {
  int agreed = own ? 1 : 0;
  check(MPI_Allreduce(MPI_IN_PLACE, &agreed, 1, MPI_INT, MPI_MIN, comm_), "MPI_Allreduce");
  return agreed == 1;
}

}  // namespace lockstep::detail
