#include "group.h"

namespace fake_cuda {
namespace {

void add_to(Batch& batch, const Group::Call& call) {
  std::visit([&](const auto& one) { batch.add(one); }, call);
}

}  // namespace

Group& Group::get() {
  thread_local Group group;
  return group;
}

ncclResult_t Group::end() {
  if (depth_ == 0) {
    set_last_error("ncclGroupEnd without ncclGroupStart");
    return ncclInvalidUsage;
  }
  if (--depth_ > 0) {
    return ncclSuccess;
  }
  ncclResult_t result = std::exchange(error_, ncclSuccess);
  const auto keep_worse = [&](ncclResult_t next) {
    if (result == ncclSuccess || (result == ncclInProgress && next != ncclSuccess)) {
      result = next;
    }
  };
  for (const Comm& comm : std::exchange(jobs_, {})) {
    keep_worse(comm->is_blocking() ? comm->join_job() : ncclInProgress);
  }
  for (const Part& part : std::exchange(parts_, {})) {
    if (result == ncclSuccess || result == ncclInProgress) {
      keep_worse(part.batch.enqueue_on(part.stream, part.name));
    }
  }
  return result;
}

ncclResult_t Group::add(const Comm& comm, cudaStream_t stream, const std::string& name,
                        const Call& call) {
  if (is_open()) {
    add_to(part(comm, stream, name).batch, call);
    return ncclSuccess;
  }
  Batch batch(comm);
  add_to(batch, call);
  return batch.enqueue_on(stream, name);
}

void Group::fail(ncclResult_t error) {
  if (is_open() && error_ == ncclSuccess) {
    error_ = error;
  }
}

Group::Part& Group::part(const Comm& comm, cudaStream_t stream, const std::string& name) {
  for (Part& part : parts_) {
    if (part.comm == comm && part.stream == stream) {
      return part;
    }
  }
  parts_.push_back({comm, stream, name, Batch(comm)});
  return parts_.back();
}

}  // namespace fake_cuda
