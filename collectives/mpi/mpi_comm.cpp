#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/mpi_comm.h>

#include <lockstep/collectives/mpi/find_mpi.h>

#include <algorithm>
#include <string>
#include <utility>

namespace lockstep::detail {
namespace {

static_assert(MpiComm::kNoColor == MpiConstants::kUndefined);

/// Who has a handle of a communicator has MPI.
const MpiLibrary& mpi() {
  return *loaded_mpi();
}

/// Before MPI_Finalize.
bool is_running() {
  int finalized = 0;
  return mpi().finalized(&finalized) == MpiConstants::kSuccess && finalized == 0;
}

}  // namespace

void check_mpi(int code, const char* call) {
  if (code != MpiConstants::kSuccess) {
    throw CommunicationError(c10::str(call, " failed: ", mpi().error_text(code)));
  }
}

MpiHandle program_comm(const MpiCommHandle& handle) {
  MpiHandle comm = 0;
  if (handle.is_fortran()) {
    comm = mpi().comm_of_fortran(static_cast<int>(handle.bits()));
  } else {
    LOCKSTEP_CHECK(handle.bytes() == mpi().comm_bytes(), "the program passed a communicator of ",
                   handle.bytes(), " bytes, but an MPI_Comm of the MPI library of this process (",
                   mpi_facts().library, ") has ", mpi().comm_bytes(),
                   "; build the program for that library, and pass a handle of Fortran through "
                   "MpiCommHandle::from_fortran");
    comm = mpi().comm_of(handle.bits());
  }
  LOCKSTEP_CHECK(comm != 0,
                 "the program passed MPI_COMM_NULL; only the ranks that belong to a communicator "
                 "construct lockstep on it");
  return comm;
}

MpiFacts mpi_facts() {
  const MpiLibrary* library = loaded_mpi();
  int up = 0;
  int level = 0;
  if (library == nullptr || library->initialized(&up) != MpiConstants::kSuccess || up == 0 ||
      library->query_thread(&level) != MpiConstants::kSuccess) {
    return {};
  }
  const std::string version = library->version();
  std::string name = version.substr(0, version.find_first_of(",\n"));
  std::replace(name.begin(), name.end(), '\t', ' ');  // MPICH's
  return {name, thread_level_name(level)};
}

const char* thread_level_name(int level) {
  return level == MpiConstants::kThreadSingle       ? "MPI_THREAD_SINGLE"
         : level == MpiConstants::kThreadFunneled   ? "MPI_THREAD_FUNNELED"
         : level == MpiConstants::kThreadSerialized ? "MPI_THREAD_SERIALIZED"
                                                    : "MPI_THREAD_MULTIPLE";
}

ReturnedErrors::ReturnedErrors(MpiHandle comm) : comm_(comm) {
  check_mpi(mpi().get_errhandler(comm_, &before_), "MPI_Comm_get_errhandler");
  check_mpi(mpi().set_errhandler(comm_, mpi().errors_return()), "MPI_Comm_set_errhandler");
}

ReturnedErrors::~ReturnedErrors() {
  mpi().set_errhandler(comm_, before_);
  mpi().errhandler_free(before_);
}

MpiComm MpiComm::duplicate(MpiHandle comm) {
  const ReturnedErrors returned(comm);
  MpiHandle copy = 0;
  check_mpi(mpi().comm_dup(comm, &copy), "MPI_Comm_dup");
  MpiComm result(copy);
  check_mpi(mpi().set_errhandler(copy, mpi().errors_return()), "MPI_Comm_set_errhandler");
  return result;
}

MpiComm MpiComm::split(MpiHandle comm, int color, int key) {
  MpiHandle part = 0;
  check_mpi(mpi().comm_split(comm, color, key, &part), "MPI_Comm_split");
  MpiComm result(part);
  if (result.valid()) {
    check_mpi(mpi().set_errhandler(part, mpi().errors_return()), "MPI_Comm_set_errhandler");
  }
  return result;
}

MpiComm MpiComm::node_of(MpiHandle comm) {
  int rank = 0;
  check_mpi(mpi().comm_rank(comm, &rank), "MPI_Comm_rank");
  MpiHandle node = 0;
  check_mpi(mpi().comm_split_shared(comm, rank, &node), "MPI_Comm_split_type");
  MpiComm result(node);
  check_mpi(mpi().set_errhandler(node, mpi().errors_return()), "MPI_Comm_set_errhandler");
  return result;
}

MpiComm::~MpiComm() {
  if (valid() && is_running()) {
    mpi().comm_free(comm_);
  }
}

MpiComm::MpiComm(MpiComm&& other) noexcept : comm_(std::exchange(other.comm_, 0)) {}

MpiComm& MpiComm::operator=(MpiComm&& other) noexcept {
  std::swap(comm_, other.comm_);
  return *this;
}

int MpiComm::rank() const {
  int rank = 0;
  check(mpi().comm_rank(comm_, &rank), "MPI_Comm_rank");
  return rank;
}

int MpiComm::size() const {
  int size = 0;
  check(mpi().comm_size(comm_, &size), "MPI_Comm_size");
  return size;
}

std::vector<int> MpiComm::job_ranks() const {
  std::vector<int> ranks;
  check(mpi().world_ranks(comm_, &ranks), "MPI_Group_translate_ranks");
  const bool all_known =
      std::find(ranks.begin(), ranks.end(), MpiConstants::kUndefined) == ranks.end();
  return all_known ? ranks : std::vector<int>();
}

void MpiComm::check(int code, const char* call) const {
  if (code != MpiConstants::kSuccess) {
    int rank = -1;
    int size = 0;
    mpi().comm_rank(comm_, &rank);
    mpi().comm_size(comm_, &size);
    throw CommunicationError(c10::str("rank ", rank, " of ", size, ": ", call, " failed: ",
                                      mpi().error_text(code), "; restart from the last snapshot"));
  }
}

void MpiComm::isend(const void* from, int bytes, int to, int tag, MpiRequest& request) const {
  check(mpi().isend(from, bytes, to, tag, comm_, &request), "MPI_Isend");
}

void MpiComm::issend(const void* from, int bytes, int to, int tag, MpiRequest& request) const {
  check(mpi().issend(from, bytes, to, tag, comm_, &request), "MPI_Issend");
}

void MpiComm::irecv(void* to, int bytes, int from, int tag, MpiRequest& request) const {
  check(mpi().irecv(to, bytes, from, tag, comm_, &request), "MPI_Irecv");
}

void MpiComm::ibarrier(MpiRequest& request) const {
  check(mpi().ibarrier(comm_, &request), "MPI_Ibarrier");
}

void MpiComm::ibroadcast(void* data, int bytes, int root, MpiRequest& request) const {
  check(mpi().ibcast(data, bytes, root, comm_, &request), "MPI_Ibcast");
}

void MpiComm::iall_gather(const void* own, int bytes, void* all, MpiRequest& request) const {
  check(mpi().iallgather(own, bytes, all, comm_, &request), "MPI_Iallgather");
}

bool MpiComm::test(MpiRequest& request) const {
  int complete = 0;
  check(mpi().test(&request, &complete), "MPI_Test");
  return complete != 0;
}

bool MpiComm::test_all(std::vector<MpiRequest>& requests) const {
  int complete = 0;
  check(mpi().test_all(&requests, &complete), "MPI_Testall");
  return complete != 0;
}

std::optional<MpiEnvelope> MpiComm::arrived(int source) const {
  int found = 0;
  MpiEnvelope message;
  check(mpi().iprobe(source, comm_, &found, &message), "MPI_Iprobe");
  return found != 0 ? std::optional<MpiEnvelope>(message) : std::nullopt;
}

void MpiComm::progress() const {
  if (is_running()) {
    arrived();
  }
}

void MpiComm::wait(MpiRequest& request) const {
  check(mpi().wait(&request), "MPI_Wait");
}

MpiEnvelope MpiComm::next_from(int source) const {
  MpiEnvelope message;
  check(mpi().probe(source, comm_, &message), "MPI_Probe");
  return message;
}

void MpiComm::send(const void* from, int bytes, int to, int tag) const {
  check(mpi().send(from, bytes, to, tag, comm_), "MPI_Send");
}

void MpiComm::receive(void* to, int bytes, int from, int tag) const {
  check(mpi().recv(to, bytes, from, tag, comm_), "MPI_Recv");
}

void MpiComm::barrier() const {
  check(mpi().barrier(comm_), "MPI_Barrier");
}

void MpiComm::broadcast(void* data, int bytes, int root) const {
  check(mpi().bcast(data, bytes, root, comm_), "MPI_Bcast");
}

void MpiComm::all_gather(const void* own, size_t bytes, void* all) const {
  check(mpi().allgather(own, static_cast<int>(bytes), all, comm_), "MPI_Allgather");
}

bool MpiComm::all_agree(bool own) const {
  const char mine = own ? 1 : 0;
  std::vector<char> all(static_cast<size_t>(size()));
  all_gather(&mine, sizeof mine, all.data());
  return std::find(all.begin(), all.end(), 0) == all.end();
}

}  // namespace lockstep::detail
