#include "fake_nccl.h"

#include "fake_device.h"

#include <algorithm>
#include <cstdlib>
#include <tuple>

namespace lockstep::testing {
namespace {

constexpr int kFirstFactor = 2;  // operators 0 and 1 are sum and max

/// One collective of a group, as far as its ranks have come.
struct Meeting {
  std::map<int, std::string> what;    // by rank
  std::map<int, at::Tensor> brought;  // by rank
};

}  // namespace

/// The ranks of one communicator.
struct Group {
  explicit Group(int size) : size(size) {}
  const int size;
  std::mutex mutex;
  std::set<int> joined;
  std::map<uint64_t, Meeting> meetings;
  std::map<uint64_t, std::set<int>> recorded_by;  // ranks that have recorded their nth collective
  struct Split {
    std::map<int, std::pair<int, int>> wishes;    // rank -> color, key
    std::map<int, std::shared_ptr<Group>> parts;  // color -> ranks
  };
  std::map<uint64_t, Split> splits;
};

struct FakeNcclWorld {
  std::mutex mutex;
  int ids = 0;
  std::map<std::string, std::shared_ptr<Group>> groups;
};

std::shared_ptr<FakeNcclWorld> make_fake_nccl_world() {
  return std::make_shared<FakeNcclWorld>();
}

struct FakeNccl::Comm {
  std::shared_ptr<Group> group;
  int rank = 0;
  uint64_t collectives = 0;
  uint64_t begun = 0;  // how many its stream has come to
  uint64_t recorded = 0;
  uint64_t splits = 0;
  int polls_left = 0;
  bool hangs = false;
  bool finalizing = false;
  std::atomic<int> under_way{0};
  std::atomic<bool> aborted{false};
  std::shared_ptr<int> records = std::make_shared<int>(0);  // shared by what is part of one
  // A part of a split that is not complete yet.
  std::shared_ptr<Group> parent;
  uint64_t split_number = 0;
  int color = -1, parent_rank = 0;
};

/// What a collective does once all ranks have brought their data.
struct FakeNccl::Plan {
  std::string what;  // must be the same on all ranks
  at::Tensor input;
  std::function<void(const std::map<int, at::Tensor>& brought)> finish;
};

FakeNccl::FakeNccl(std::shared_ptr<FakeNcclWorld> world, Script script)
    : world_(std::move(world)), script_(std::move(script)) {}
FakeNccl::~FakeNccl() = default;

void FakeNccl::note(const std::string& call) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  calls_.push_back(call);
}

std::vector<std::string> FakeNccl::calls() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return calls_;
}

int FakeNccl::count(const std::string& begins_with) const {
  const std::vector<std::string> all = calls();
  return static_cast<int>(std::count_if(all.begin(), all.end(), [&](const std::string& call) {
    return call.compare(0, begins_with.size(), begins_with) == 0;
  }));
}

NcclStatus FakeNccl::answer(Comm& comm) {
  comm.polls_left = script_.polls;
  return script_.polls > 0 ? NcclStatus::in_progress : NcclStatus::success;
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

NcclStatus FakeNccl::init(Handle* comm, int ranks, const Id& id, int rank) {
  note("init");
  if (script_.init_fails) {
    return *script_.init_fails;
  }
  auto made = std::make_shared<Comm>();
  made->rank = rank;
  made->hangs = script_.init_hangs;
  {
    const std::lock_guard<std::mutex> lock(world_->mutex);
    auto& group = world_->groups[std::string(id.data())];
    if (group == nullptr) {
      group = std::make_shared<Group>(ranks);
    }
    made->group = group;
  }
  {
    const std::lock_guard<std::mutex> lock(made->group->mutex);
    made->group->joined.insert(rank);
  }
  comms_.push_back(made);
  *comm = made.get();
  made->polls_left = script_.polls;
  return NcclStatus::in_progress;
}

NcclStatus FakeNccl::poll(Handle handle) {
  Comm& comm = *static_cast<Comm*>(handle);
  if (comm.hangs || (comm.finalizing && comm.under_way.load() > 0)) {
    return NcclStatus::in_progress;
  }
  if (comm.polls_left > 0) {
    --comm.polls_left;
    return NcclStatus::in_progress;
  }
  if (comm.group == nullptr) {  // the part of a split
    const std::lock_guard<std::mutex> lock(comm.parent->mutex);
    Group::Split& split = comm.parent->splits[comm.split_number];
    if (static_cast<int>(split.wishes.size()) < comm.parent->size) {
      return NcclStatus::in_progress;
    }
    std::vector<std::tuple<int, int>> members;  // key, rank
    for (const auto& [rank, wish] : split.wishes) {
      if (wish.first == comm.color) {
        members.emplace_back(wish.second, rank);
      }
    }
    std::sort(members.begin(), members.end());
    auto& group = split.parts[comm.color];
    if (group == nullptr) {
      group = std::make_shared<Group>(static_cast<int>(members.size()));
      for (int k = 0; k < group->size; ++k) {
        group->joined.insert(k);
      }
    }
    for (size_t k = 0; k < members.size(); ++k) {
      if (std::get<1>(members[k]) == comm.parent_rank) {
        comm.rank = static_cast<int>(k);
      }
    }
    comm.group = group;
  }
  for (const auto& [number, status] : script_.error_after) {
    if (comm.collectives >= number) {
      return status;
    }
  }
  const std::lock_guard<std::mutex> lock(comm.group->mutex);
  const std::set<int>& here =
      comm.recorded > 0 ? comm.group->recorded_by[comm.recorded] : comm.group->joined;
  const bool all_here = static_cast<int>(here.size()) == comm.group->size;
  return all_here ? NcclStatus::success : NcclStatus::in_progress;
}

NcclStatus FakeNccl::split(Handle handle, int color, int key, Handle* part) {
  note(c10::str("split ", color < 0 ? -1 : color));
  if (script_.split_fails) {
    return *script_.split_fails;
  }
  Comm& comm = *static_cast<Comm*>(handle);
  {
    const std::lock_guard<std::mutex> lock(comm.group->mutex);
    comm.group->splits[++comm.splits].wishes[comm.rank] = {color, key};
  }
  *part = nullptr;
  if (color >= 0) {
    auto made = std::make_shared<Comm>();
    made->parent = comm.group;
    made->split_number = comm.splits;
    made->color = color;
    made->parent_rank = comm.rank;
    comms_.push_back(made);
    *part = made.get();
  }
  return answer(comm);
}

NcclStatus FakeNccl::finalize(Handle comm) {
  note("finalize");
  static_cast<Comm*>(comm)->finalizing = true;
  answer(*static_cast<Comm*>(comm));
  return NcclStatus::in_progress;
}

NcclStatus FakeNccl::destroy(Handle) {
  note("destroy");
  return NcclStatus::success;
}

NcclStatus FakeNccl::abort(Handle comm) {
  note("abort");
  while (script_.abort_hangs && !abort_released_.load()) {
    std::this_thread::yield();
  }
  Comm& ended = *static_cast<Comm*>(comm);
  {
    const std::lock_guard<std::mutex> nothing_is_copied(ended.group->mutex);
    ended.aborted.store(true);
  }
  while (ended.records.use_count() > 1) {
    std::this_thread::yield();
  }
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

/// A rank's part in a collective, on its stream.
struct FakeNccl::Part {
  bool operator()() {
    const bool done = meet();
    if (done && record == nullptr) {
      --self->under_way;
    }
    return done;
  }

  bool meet() {
    Group& group = *self->group;
    std::map<int, at::Tensor> brought;
    {
      const std::lock_guard<std::mutex> lock(group.mutex);
      if (self->aborted.load()) {
        return true;
      }
      number = number > 0 ? number : ++self->begun;
      if (hangs_at.count(number) > 0) {
        return false;
      }
      Meeting& meeting = group.meetings[number];
      if (!arrived) {
        arrived = true;
        meeting.what[self->rank] = plan.what;
        meeting.brought[self->rank] = plan.input.clone();
      }
      for (const auto& [rank, what] : meeting.what) {
        if (what != plan.what) {
          return false;  // as NCCL: nobody notices
        }
      }
      if (static_cast<int>(meeting.brought.size()) < group.size) {
        return false;
      }
      brought = meeting.brought;
    }
    const std::lock_guard<std::mutex> not_aborting(group.mutex);
    if (!self->aborted.load()) {
      plan.finish(brought);
    }
    return true;
  }

  std::shared_ptr<Comm> self;
  Plan plan;
  std::set<uint64_t> hangs_at;
  std::shared_ptr<int> record;  // null where it is part of none
  uint64_t number = 0;
  bool arrived = false;
};

NcclStatus FakeNccl::enqueue(Comm& comm, Plan plan, void* stream) {
  note(plan.what);
  ++comm.collectives;
  if (script_.collective_fails) {
    return *script_.collective_fails;
  }
  auto& on = *static_cast<FakeStream*>(stream);
  const bool recorded = on.record() != nullptr;
  if (recorded) {
    plan.what += " of a record";
    const std::lock_guard<std::mutex> lock(comm.group->mutex);
    comm.group->recorded_by[++comm.recorded].insert(comm.rank);
  } else {
    ++comm.under_way;
  }
  for (const auto& known : comms_) {
    if (known.get() == &comm) {
      on.put(Part{known, std::move(plan), script_.hangs_at, recorded ? comm.records : nullptr});
      break;
    }
  }
  return recorded ? NcclStatus::in_progress : answer(comm);
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
                                                         : (result + term).to(term.scalar_type());
  }
  return result;
}

}  // namespace

NcclStatus FakeNccl::all_reduce(const void* input, void* output, size_t count,
                                c10::ScalarType dtype, int op, Handle comm, void* stream) {
  return enqueue(*static_cast<Comm*>(comm),
                 {c10::str("all_reduce ", c10::toString(dtype), "[", count, "] op ", op),
                  bytes_at(input, count, dtype),
                  [=, factors = factors_](const std::map<int, at::Tensor>& brought) {
                    bytes_at(output, count, dtype).copy_(reduced(brought, op, factors));
                  }},
                 stream);
}

NcclStatus FakeNccl::reduce_scatter(const void* input, void* output, size_t count,
                                    c10::ScalarType dtype, int op, Handle handle, void* stream) {
  Comm& comm = *static_cast<Comm*>(handle);
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
  return enqueue(*static_cast<Comm*>(comm),
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
  return enqueue(*static_cast<Comm*>(comm),
                 {c10::str("broadcast ", bytes, " from ", root), bytes_at(buffer, bytes, at::kByte),
                  [=](const std::map<int, at::Tensor>& brought) {
                    std::memcpy(buffer, brought.at(root).data_ptr(), bytes);
                  }},
                 stream);
}

NcclStatus FakeNccl::allocate(void** memory, size_t bytes) {
  note("allocate");
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

NcclStatus FakeNccl::register_memory(Handle, void* memory, size_t, void** token) {
  note("register");
  *token = memory;
  return script_.no_registration ? NcclStatus::invalid_usage : NcclStatus::success;
}

NcclStatus FakeNccl::deregister_memory(Handle, void*) {
  note("deregister");
  return NcclStatus::success;
}

}  // namespace lockstep::testing
