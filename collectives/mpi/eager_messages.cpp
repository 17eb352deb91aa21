#include <lockstep/collectives/mpi/eager_messages.h>

#include <algorithm>

namespace lockstep::detail {
namespace {

/// Calls `pass(begin, bytes)` for each message of `bytes`.
template <typename Pass>
void for_each_message(int64_t bytes, const Pass& pass) {
  for (int64_t begin = 0; begin < bytes; begin += EagerMessages::kBytes) {
    pass(begin, static_cast<int>(std::min(EagerMessages::kBytes, bytes - begin)));
  }
}

}  // namespace

void EagerMessages::send(const void* from, int64_t bytes, int to, int tag) {
  for_each_message(bytes, [&](int64_t begin, int count) {
    requests_.emplace_back(MPI_REQUEST_NULL);
    comm_.check(MPI_Isend(static_cast<const char*>(from) + begin, count, MPI_BYTE, to, tag,
                          comm_.get(), &requests_.back()),
                "MPI_Isend");
  });
}

void EagerMessages::receive(void* to, int64_t bytes, int from, int tag) {
  for_each_message(bytes, [&](int64_t begin, int count) {
    requests_.emplace_back(MPI_REQUEST_NULL);
    comm_.check(MPI_Irecv(static_cast<char*>(to) + begin, count, MPI_BYTE, from, tag, comm_.get(),
                          &requests_.back()),
                "MPI_Irecv");
  });
}

bool EagerMessages::are_complete() {
  int complete = 0;
  comm_.check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &complete,
                          MPI_STATUSES_IGNORE),
              "MPI_Testall");
  if (complete != 0) {
    requests_.clear();
  }
  return complete != 0;
}

}  // namespace lockstep::detail
