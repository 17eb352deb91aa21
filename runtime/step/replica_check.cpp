#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/collectives/impl/device_watch.h>
#include <lockstep/collectives/impl/rank_names.h>
#include <lockstep/runtime/runtime.h>
#include <lockstep/runtime/step/impl/replica_check.h>
#include <lockstep/runtime/storage/impl/replicas.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace lockstep::detail {
namespace {

constexpr int64_t kLeastPart = 4096;  // bytes: half a microsecond

/// In the votes a digest has so few bits that sums of its square over 8192 ranks are exact.
constexpr unsigned kVoteBits = 18;

/// Adds form(bucket) of each bucket, parameter by parameter.
template <typename Form>
void add_flats(std::vector<ReplicatedArray>& arrays, const Arena& arena, const Reducer& reducer,
               const char* kind, const Form& form) {
  for (size_t b = 0; b < arena.buckets().size(); ++b) {
    const at::Tensor flat = form(arena.buckets()[b]);
    if (!flat.defined()) {
      continue;
    }
    for (const Slot& slot : reducer.plans()[b].slots) {
      arrays.push_back({reducer.parameters()[static_cast<size_t>(slot.parameter)].name + kind,
                        flat.narrow(0, slot.offset, slot.numel)});
    }
  }
}

/// Empty for a torch::optim optimizer whose state cannot be visited; its masters are compared.
std::vector<ReplicatedArray> moments(const Reducer& reducer, Updater& updater) {
  std::vector<ReplicatedArray> arrays;
  StateArchive archive(StateArchive::Pass::save, [&](const StateEntry& entry) {
    if (!entry.is_part()) {
      arrays.push_back({entry.name, entry.place});
    }
  });
  try {
    updater.visit_state(reducer, archive);
  } catch (const Error&) {
    arrays.clear();
  }
  return arrays;
}

/// The weight of an array: "a.weight" of "a.weight (master)".
std::string weight_of(const std::string& array) {
  return array.substr(0, array.find(" ("));
}

/// The first array whose weight a rank's program wrote, or the first one. Collective.
std::string first_written(const std::vector<ReplicatedArray>& arrays, const WrittenWeights& written,
                          const Communicator& ranks) {
  const std::vector<std::string> names = written.names();
  const auto mine = std::find_if(arrays.begin(), arrays.end(), [&](const ReplicatedArray& array) {
    return std::count(names.begin(), names.end(), weight_of(array.name)) > 0;
  });
  const at::Tensor first = at::scalar_tensor(arrays.begin() - mine, at::kLong).reshape({1});
  ranks.all_reduce(first, ReduceOp::max()).wait();
  const auto found = static_cast<size_t>(-first.item<int64_t>());
  return arrays[found < arrays.size() ? found : 0].name;
}

/// What may have made the ranks' arrays of this weight differ. Collective.
std::string cause_of(const std::string& weight, const WrittenWeights& written,
                     const Communicator& ranks) {
  const std::vector<std::string> names = written.names();
  const bool mine = std::count(names.begin(), names.end(), weight) > 0;
  const std::vector<std::string> all = ranks.all_gather_bytes(mine ? "written" : "");
  std::vector<int> writers;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].empty()) {
      writers.push_back(static_cast<int>(rank));
    }
  }
  if (writers.empty()) {
    return "Memory that is faulty, or weights that the program wrote on one rank alone, do that: "
           "go on";
  }
  return c10::str("The program wrote into weight ", weight, " on ", rank_names(writers),
                  ", in forward or between steps, and what it wrote differs between ranks. The "
                  "commonest cause is max_norm of functional::embedding or embedding_bag, which "
                  "shrinks the rows of a rank's own batch: use nn::Embedding or nn::EmbeddingBag "
                  "with max_norm, whose tables are kept equal. Else write the same values on "
                  "every rank. Go on");
}

}  // namespace

ReplicaCheck::ReplicaCheck(const Trainable& trainable, const Arena& arena, const Reducer& reducer,
                           Updater& updater, WrittenWeights& written, Agreement agreement,
                           int64_t every, std::vector<ReplicatedArray> shared,
                           const NamedTensors& averages)
    : trainable_(trainable),
      reducer_(reducer),
      updater_(updater),
      written_(written),
      has_one_copy_(arena.shared()),
      device_(arena.buckets().front().weights.device()),
      agreement_(std::move(agreement)),
      only_shared_(!shared.empty()),
      arrays_(std::move(shared)),
      without_moments_(arrays_.size()) {
  if (!only_shared_) {
    note_arrays(arena, averages);
  }
  begins_.push_back(0);
  for (const ReplicatedArray& each : arrays_) {
    begins_.push_back(begins_.back() + static_cast<int64_t>(each.array.nbytes()));
  }
  if (every == 0 || agreement_.communicator().size() == 1) {
    return;
  }
  if (device_.is_cpu()) {
    part_bytes_ = std::max(kLeastPart, (begins_.back() + every - 1) / every);
  } else {
    const auto updates = static_cast<size_t>(every);
    part_arrays_ = (arrays_.size() + updates - 1) / updates;
  }
}

void ReplicaCheck::note_arrays(const Arena& arena, const NamedTensors& averages) {
  using Bucket = Arena::Bucket;
  if (!arena.sharded()) {
    add_flats(arrays_, arena, reducer_, " (master)", [](const Bucket& bucket) {
      return bucket.masters.is_same(bucket.weights) ? at::Tensor() : bucket.masters;
    });
    add_flats(arrays_, arena, reducer_, " (remainder)",
              [](const Bucket& bucket) { return bucket.remainders; });
    add_flats(arrays_, arena, reducer_, ".ema",
              [](const Bucket& bucket) { return bucket.average; });
  }
  add_flats(arrays_, arena, reducer_, "", [](const Bucket& bucket) { return bucket.weights; });
  for (const auto& [name, average] : averages) {
    arrays_.push_back({name + ".ema", ReplicatedArray{name, average}.flat()});
  }
  without_moments_ = arrays_.size();
  for (const ReplicatedArray& moment : moments(reducer_, updater_)) {
    arrays_.push_back({moment.name, moment.flat()});
  }
}

void ReplicaCheck::add_to(Votes& mine, int64_t update) {
  compared_ = false;
  if (part_bytes_ > 0) {
    digest_on_host(update);
  } else if (part_arrays_ > 0) {
    digest_on_device(update);
  }
  mine.digest = static_cast<double>(last_digest_ >> (64U - kVoteBits));
  mine.digest_squared = mine.digest * mine.digest;
  hidden_ = written_.hidden_on_host();
  mine.hidden = hidden_ ? 1 : 0;
}

void ReplicaCheck::digest_on_host(int64_t update) {
  // At least one, also of a model without elements.
  const int64_t parts = std::max<int64_t>((begins_.back() + part_bytes_ - 1) / part_bytes_, 1);
  const int64_t begin = update % parts * part_bytes_;
  const int64_t end = std::min(begin + part_bytes_, begins_.back());
  auto i = static_cast<size_t>(std::upper_bound(begins_.begin(), begins_.end(), begin) -
                               begins_.begin() - 1);
  last_array_ = i;
  last_digest_ = 0;
  for (; i < arrays_.size() && begins_[i] < end; ++i) {
    const int64_t from = std::max(begin, begins_[i]) - begins_[i];
    const int64_t to = std::min(end, begins_[i + 1]) - begins_[i];
    const auto* bytes = static_cast<const char*>(arrays_[i].array.const_data_ptr());
    last_digest_ = XXH3_64bits_withSeed(bytes + from, static_cast<size_t>(to - from), last_digest_);
  }
}

/// The sum of the bytes: one flipped bit changes the sum. Integers, so the order does not matter.
/// The host has waited for the window before last already (Decisions::known()).
void ReplicaCheck::digest_on_device(int64_t update) {
  const size_t parts = (arrays_.size() + part_arrays_ - 1) / part_arrays_;
  const size_t first = static_cast<size_t>(update) % parts * part_arrays_;
  const at::Tensor sum = at::zeros({}, at::TensorOptions().dtype(at::kLong).device(device_));
  uint64_t on_host = 0;
  for (size_t i = first; i < std::min(first + part_arrays_, arrays_.size()); ++i) {
    const at::Tensor& array = arrays_[i].array;
    if (array.is_cpu()) {  // counters of moments, and states that are kept there
      on_host = digest_of(array.const_data_ptr(), array.nbytes(), on_host);
    } else {
      sum.mul_(31).add_(array.view(at::kByte).sum(at::kLong));
    }
  }
  const at::Tensor host = host_memory_for(device_, {}, at::kLong);
  host.copy_(sum, /*non_blocking=*/true);
  const c10::impl::VirtualGuardImpl guard(device_.type());
  copied_.push_back({host, c10::Event(device_.type()), first, on_host});
  copied_.back().event.record(guard.getStream(device_));
  if (copied_.size() > 2) {
    const Copied& earlier = copied_.front();
    earlier.event.synchronize();
    last_array_ = earlier.first_array;
    const int64_t value = *earlier.sum.const_data_ptr<int64_t>();
    last_digest_ = digest_of(&value, sizeof value, earlier.on_host);
    copied_.pop_front();
  }
}

bool ReplicaCheck::digests_differ(const Votes& all) const {
  const auto sum = static_cast<uint64_t>(all.digest);
  const auto squares = static_cast<uint64_t>(all.digest_squared);
  return sum * sum != squares * static_cast<uint64_t>(agreement_.communicator().size());
}

void ReplicaCheck::take_shared() {
  if (!written_.takes_shared()) {
    return;
  }
  if (const auto difference = written_.take_shared(agreement_)) {
    throw diverged(*difference, difference->first);
  }
}

void ReplicaCheck::take_shared(Votes& all) {
  if (has_one_copy_ && all.hidden > 0) {
    take_shared();
    hidden_ = written_.hidden_on_host();
    all.hidden = agreement_.any(hidden_.has_value()) ? 1 : 0;
  }
}

void ReplicaCheck::raise(const Votes& all) {
  if (has_one_copy_ && all.hidden > 0) {
    agreement_.raise(hidden_);
  }
  require_equal_state();
  if (!digests_differ(all)) {
    agreement_.raise(hidden_);
  }
  // The state is equal by now: the update wrote the weight from its master before the host knew.
  const std::vector<std::string> names = {
      c10::str("what the last update compared, from ", arrays_[last_array_].name, " on")};
  const std::string mine(reinterpret_cast<const char*>(&last_digest_), sizeof last_digest_);
  const DigestDifference difference =
      difference_of(names, agreement_.communicator().all_gather_bytes(mine));
  const auto part = arrays_.begin() + static_cast<std::ptrdiff_t>(last_array_);
  const auto left = static_cast<size_t>(arrays_.end() - part);
  const std::vector<ReplicatedArray> compared(
      part, part + static_cast<std::ptrdiff_t>(std::clamp(part_arrays_, size_t{1}, left)));
  throw diverged(difference, first_written(compared, written_, agreement_.communicator()));
}

Error ReplicaCheck::diverged(const DigestDifference& difference, const std::string& array) const {
  return Error(
      c10::str("replicas have diverged: ", difference.text, ". Nothing was updated or saved. ",
               cause_of(weight_of(array), written_, agreement_.communicator()),
               " from the last snapshot with trainer.resume(folder) on every rank"),
      ExitCode::diverged, difference.ranks);
}

std::vector<ReplicatedArray> ReplicaCheck::whole_state() {
  std::vector<ReplicatedArray> state(
      arrays_.begin(), arrays_.begin() + static_cast<std::ptrdiff_t>(without_moments_));
  if (!only_shared_) {
    for (ReplicatedArray& moment : moments(reducer_, updater_)) {
      state.push_back(std::move(moment));
    }
  }
  for (const ModelTensor& entry : trainable_.frozen) {
    state.push_back({entry.name, entry.tensor.detach()});
  }
  return state;
}

void ReplicaCheck::require_equal_state() {
  if (const auto found = difference_between_ranks(whole_state(), agreement_)) {
    throw diverged(*found, found->first);
  }
}

void ReplicaCheck::require_equal() {
  if (has_one_copy_) {
    agreement_.raise_if_any(written_.hidden());
  }
  require_equal_state();
  agreement_.raise_if_any(written_.hidden());
  compared_ = true;
}

void ReplicaCheck::hold_at_end(const Runtime& runtime) {
  if (compared_ || agreement_.communicator().size() == 1) {
    return;
  }
  for (const ReplicatedArray& each : whole_state()) {
    if (!written_.is_renormed(each.name)) {  // an evaluation may have shrunk other rows on a peer
      runtime.hold_at_end(each.name, each.digest());
    }
  }
}

bool ReplicaCheck::are_equal(const std::vector<ReplicatedArray>& more) {
  if (written_.takes_shared()) {
    written_.take_shared(agreement_);  // what is not alike differs below
  }
  std::vector<ReplicatedArray> state = whole_state();
  state.insert(state.end(), more.begin(), more.end());
  const bool equal = !difference_between_ranks(state, agreement_).has_value();
  return !agreement_.any(written_.hidden().has_value()) && equal;
}

}  // namespace lockstep::detail
