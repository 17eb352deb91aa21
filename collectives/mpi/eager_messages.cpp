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
    requests_.emplace_back();
    comm_.isend(static_cast<const char*>(from) + begin, count, to, tag, requests_.back());
  });
}

void EagerMessages::receive(void* to, int64_t bytes, int from, int tag) {
  for_each_message(bytes, [&](int64_t begin, int count) {
    requests_.emplace_back();
    comm_.irecv(static_cast<char*>(to) + begin, count, from, tag, requests_.back());
  });
}

bool EagerMessages::are_complete() {
  if (!comm_.test_all(requests_)) {
    return false;
  }
  requests_.clear();
  return true;
}

}  // namespace lockstep::detail
