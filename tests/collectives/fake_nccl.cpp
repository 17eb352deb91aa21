#include "fake_nccl.h"

#include "fake_device.h"
#include "fake_nccl_ranks.h"

#include <algorithm>
#include <cstdlib>

namespace lockstep::testing {

using namespace detail;

namespace {

constexpr int kFirstFactor = 3;  // operators 0 to 2 are sum, max and min

}  // namespace

struct FakeNcclWorld {
  std::mutex mutex;
  int ids = 0;
  std::map<std::string, std::shared_ptr<FakeGroup>> groups;
};

std::shared_ptr<FakeNcclWorld> make_fake_nccl_world() {
  return std::make_shared<FakeNcclWorld>();
}

/// A thread's stay in one call on one communicator.
class FakeNccl::Inside {
 public:
  Inside(FakeNccl& nccl, Handle handle, const char* call) : comm_(*static_cast<FakeComm*>(handle)) {
    const char* other = comm_.inside.exchange(call);
    if (other != nullptr || comm_.freed.load()) {
      const std::lock_guard<std::mutex> lock(nccl.mutex_);
      nccl.misuse_.push_back(other == nullptr ? c10::str(call, " after the end")
                                              : c10::str(call, " during ", other));
    }
    nccl.script_.inside(call);
  }
  ~Inside() { comm_.inside.store(nullptr); }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  FakeComm& comm_;
};

FakeNccl::FakeNccl(std::shared_ptr<FakeNcclWorld> world, Script script)
    : world_(std::move(world)), script_(std::move(script)) {}
FakeNccl::~FakeNccl() = default;

void FakeNccl::require_device(const char* call) {
  if (!OnFakeDevice::entered()) {
    const std::lock_guard<std::mutex> lock(mutex_);
    misuse_.push_back(c10::str(call, " by a thread whose current device is another one"));
  }
}

void FakeNccl::note(const std::string& call) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  calls_.push_back(call);
}

std::vector<std::string> FakeNccl::calls() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return calls_;
}

std::vector<std::string> FakeNccl::misuse() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return misuse_;
}

int FakeNccl::count(const std::string& begins_with) const {
  const std::vector<std::string> all = calls();
  return static_cast<int>(std::count_if(all.begin(), all.end(), [&](const std::string& call) {
    return call.compare(0, begins_with.size(), begins_with) == 0;
  }));
}

NcclStatus FakeNccl::answer(FakeComm& comm) {
  if (script_.blocks) {
    while (script_.hangs_at.count(comm.collectives) > 0 && !comm.aborted.load()) {
      std::this_thread::yield();
    }
    return comm.aborted.load() ? NcclStatus::internal_error : NcclStatus::success;
  }
  comm.polls_left = script_.polls;
  comm.start_job();
  ++threads_;
  return NcclStatus::in_progress;
}

NcclStatus FakeNccl::make_id(Id* id) {
  if (script_.id_fails) {
    return *script_.id_fails;
  }
  const std::lock_guard<std::mutex> lock(world_->mutex);
  const std::string text = "id " + std::to_string(++world_->ids);
  std::copy(text.begin(), text.end(), id->begin());
  return NcclStatus::success;
}

NcclStatus FakeNccl::init(Handle* comm, int ranks, const std::vector<Id>& ids, int rank) {
  note(c10::str("init with ", ids.size(), " ids"));
  require_device("init");
  if (script_.init_fails) {
    return *script_.init_fails;
  }
  auto made = std::make_shared<FakeComm>();
  made->rank = rank;
  made->hangs = script_.init_hangs;
  {
    const std::lock_guard<std::mutex> lock(world_->mutex);
    std::string name;  // ranks that mix up their ids do not meet
    for (const Id& id : ids) {
      name += std::string(id.data()) + " ";
    }
    auto& group = world_->groups[name];
    if (group == nullptr) {
      group = std::make_shared<FakeGroup>(ranks);
    }
    made->group = group;
  }
  {
    const std::lock_guard<std::mutex> lock(made->group->mutex);
    made->group->joined.insert(rank);
  }
  comms_.push_back(made);
  *comm = made.get();
  return answer(*made);
}

NcclStatus FakeNccl::poll(Handle handle) {
  const Inside inside(*this, handle, "poll");
  FakeComm& comm = *static_cast<FakeComm*>(handle);
  if (!comm.job_is_done()) {
    return NcclStatus::in_progress;
  }
  if (comm.hangs || (comm.finalizing && comm.under_way.load() > 0)) {
    return NcclStatus::in_progress;
  }
  if (comm.polls_left > 0) {
    --comm.polls_left;
    return NcclStatus::in_progress;
  }
  if (!comm.find_group()) {
    return NcclStatus::in_progress;
  }
  // Such an error comes after the call has returned: the caller's own polls do not see it.
  const bool by_caller = comm.caller == std::this_thread::get_id();
  for (const auto& [number, status] : script_.error_after) {
    if (comm.collectives >= number && !by_caller) {
      return status;
    }
  }
  if (!comm.all_here()) {
    return NcclStatus::in_progress;
  }
  if (comm.hand_out) {
    std::exchange(comm.hand_out, nullptr)();
  }
  return NcclStatus::success;
}

NcclStatus FakeNccl::split(Handle handle, int color, int key, Handle* part) {
  const Inside inside(*this, handle, "split");
  note(c10::str("split ", color < 0 ? -1 : color));
  require_device("split");
  if (script_.split_fails) {
    return *script_.split_fails;
  }
  FakeComm& comm = *static_cast<FakeComm*>(handle);
  {
    const std::lock_guard<std::mutex> lock(comm.group->mutex);
    comm.group->splits[++comm.splits].wishes[comm.rank] = {color, key};
  }
  *part = nullptr;
  FakeComm* handle_of_part = nullptr;
  if (color >= 0) {
    auto made = std::make_shared<FakeComm>();
    made->parent = comm.group;
    made->split_number = comm.splits;
    made->color = color;
    made->parent_rank = comm.rank;
    comms_.push_back(made);
    handle_of_part = made.get();
  }
  comm.hand_out = [part, handle_of_part] { *part = handle_of_part; };
  const NcclStatus status = answer(comm);
  comm.polls_left = std::max(1, script_.polls);
  return status == NcclStatus::in_progress ? NcclStatus::success : status;
}

NcclStatus FakeNccl::finalize(Handle comm) {
  const Inside inside(*this, comm, "finalize");
  note("finalize");
  static_cast<FakeComm*>(comm)->finalizing = true;
  return answer(*static_cast<FakeComm*>(comm));
}

NcclStatus FakeNccl::destroy(Handle comm) {
  const Inside inside(*this, comm, "destroy");
  note("destroy");
  static_cast<FakeComm*>(comm)->end_job();
  static_cast<FakeComm*>(comm)->freed.store(true);
  return NcclStatus::success;
}

std::string FakeNccl::last_error(Handle comm) {
  std::optional<Inside> inside;
  if (comm != nullptr) {
    inside.emplace(*this, comm, "last_error");
  }
  return "the fake's last words";
}

NcclStatus FakeNccl::abort(Handle comm) {
  const Inside inside(*this, comm, "abort");
  note("abort");
  while (script_.abort_hangs && !abort_released_.load()) {
    std::this_thread::yield();
  }
  FakeComm& ended = *static_cast<FakeComm*>(comm);
  {
    const std::lock_guard<std::mutex> nothing_is_copied(ended.group->mutex);
    ended.aborted.store(true);
  }
  while (ended.has_graphs()) {
    std::this_thread::yield();
  }
  ended.end_job();
  ended.freed.store(true);
  note("has aborted");
  return NcclStatus::success;
}

NcclStatus FakeNccl::make_premultiplied_sum(Handle, c10::ScalarType dtype, double factor, int* op) {
  note(c10::str("premultiplied_sum ", c10::toString(dtype), " ", factor));
  const std::lock_guard<std::mutex> lock(mutex_);
  factors_.push_back(factor);
  *op = kFirstFactor + static_cast<int>(factors_.size()) - 1;
  return NcclStatus::success;
}

NcclStatus FakeNccl::enqueue(FakeComm& comm, FakePlan plan, void* stream) {
  const Inside inside(*this, &comm, "a collective");
  note(plan.what);
  ++comm.collectives;
  comm.caller = std::this_thread::get_id();
  if (script_.collective_fails) {
    return *script_.collective_fails;
  }
  auto& on = *static_cast<FakeStream*>(stream);
  const bool captured = on.graph() != nullptr;
  if (captured) {
    plan.what += " of a graph";
    comm.note_captured();
  } else {
    ++comm.under_way;
  }
  for (const auto& known : comms_) {
    if (known.get() == &comm) {
      on.put(FakePart{known, std::move(plan), script_.hangs_at, captured ? comm.graphs : nullptr});
      break;
    }
  }
  return answer(comm);
}

namespace {

at::Tensor bytes_at(const void* memory, size_t count, c10::ScalarType dtype) {
  return at::from_blob(const_cast<void*>(memory), {static_cast<int64_t>(count)},
                       at::TensorOptions().dtype(dtype));
}

at::Tensor reduced(const std::map<int, at::Tensor>& brought, int op,
                   const std::vector<double>& factors) {
  at::Tensor result;
  for (const auto& [rank, tensor] : brought) {
    const at::Tensor term =
        op >= kFirstFactor ? tensor * factors[static_cast<size_t>(op - kFirstFactor)] : tensor;
    result = !result.defined()                           ? term.clone()
             : op == static_cast<int>(NcclApi::Sum::max) ? at::maximum(result, term)
             : op == static_cast<int>(NcclApi::Sum::min) ? at::minimum(result, term)
                                                         : (result + term).to(term.scalar_type());
  }
  return result;
}

}  // namespace

NcclStatus FakeNccl::all_reduce(const void* input, void* output, size_t count,
                                c10::ScalarType dtype, int op, Handle comm, void* stream) {
  return enqueue(*static_cast<FakeComm*>(comm),
                 {c10::str("all_reduce ", c10::toString(dtype), "[", count, "] op ", op),
                  bytes_at(input, count, dtype),
                  [=, factors = factors_](const std::map<int, at::Tensor>& brought) {
                    bytes_at(output, count, dtype).copy_(reduced(brought, op, factors));
                  }},
                 stream);
}

NcclStatus FakeNccl::reduce_scatter(const void* input, void* output, size_t count,
                                    c10::ScalarType dtype, int op, Handle handle, void* stream) {
  FakeComm& comm = *static_cast<FakeComm*>(handle);
  const size_t ranks = static_cast<size_t>(comm.group->size);
  const auto share = static_cast<int64_t>(count);
  return enqueue(
      comm,
      {c10::str("reduce_scatter ", c10::toString(dtype), "[", count, "] op ", op),
       bytes_at(input, count * ranks, dtype),
       [=, rank = comm.rank, factors = factors_](const std::map<int, at::Tensor>& brought) {
         bytes_at(output, count, dtype)
             .copy_(reduced(brought, op, factors).narrow(0, rank * share, share));
       }},
      stream);
}

NcclStatus FakeNccl::all_gather(const void* input, void* output, size_t bytes, Handle comm,
                                void* stream) {
  return enqueue(*static_cast<FakeComm*>(comm),
                 {c10::str("all_gather ", bytes), bytes_at(input, bytes, at::kByte),
                  [=](const std::map<int, at::Tensor>& brought) {
                    for (const auto& [rank, tensor] : brought) {
                      std::memcpy(static_cast<char*>(output) + static_cast<size_t>(rank) * bytes,
                                  tensor.data_ptr(), bytes);
                    }
                  }},
                 stream);
}

NcclStatus FakeNccl::broadcast(void* buffer, size_t bytes, int root, Handle comm, void* stream) {
  return enqueue(*static_cast<FakeComm*>(comm),
                 {c10::str("broadcast ", bytes, " from ", root), bytes_at(buffer, bytes, at::kByte),
                  [=](const std::map<int, at::Tensor>& brought) {
                    std::memcpy(buffer, brought.at(root).data_ptr(), bytes);
                  }},
                 stream);
}

NcclStatus FakeNccl::allocate(void** memory, size_t bytes) {
  note("allocate");
  require_device("allocate");
  if (script_.no_memory) {
    return NcclStatus::cuda_error;
  }
  *memory = std::malloc(bytes);
  std::memset(*memory, 0xAB, bytes);
  ++blocks_;
  return NcclStatus::success;
}

NcclStatus FakeNccl::release(void* memory) {
  note("release");
  std::free(memory);
  --blocks_;
  return NcclStatus::success;
}

NcclStatus FakeNccl::register_memory(Handle comm, void* memory, size_t, void** token) {
  const Inside inside(*this, comm, "register");
  note("register");
  require_device("register");
  *token = memory;
  return script_.no_registration ? NcclStatus::invalid_usage : NcclStatus::success;
}

NcclStatus FakeNccl::deregister_memory(Handle comm, void*) {
  const Inside inside(*this, comm, "deregister");
  note("deregister");
  return NcclStatus::success;
}

}  // namespace lockstep::testing
