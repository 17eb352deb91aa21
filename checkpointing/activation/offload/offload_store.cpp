#include <lockstep/checkpointing/activation/offload/offload_store.h>
#include <lockstep/collectives/check.h>

#include <cstddef>
#include <iterator>
#include <utility>

namespace lockstep::activation {

namespace {

void check_unchanged(const at::Tensor& tensor, uint32_t version) {
  LOCKSTEP_CHECK(tensor._version() == version, "OffloadActivations: a saved tensor (",
                 tensor.dtype(), tensor.sizes(), " on ", tensor.device(),
                 ") is modified in place after forward (version ", version, ", now ",
                 tensor._version(), "): run backward first");
}

}  // namespace

/// Held by a node: a slot, or the tensor itself if it stays on the device.
class OffloadStore::Holder final : public torch::autograd::SavedVariableHooks {
 public:
  explicit Holder(std::shared_ptr<OffloadStore> store) : store_(std::move(store)) {}

  void call_pack_hook(const at::Tensor& tensor) override {
    if (store_->moves(tensor)) {
      slot_ = store_->add(tensor);
    }
    if (!slot_) {
      stays_ = LateFill::detached(tensor);
      version_ = static_cast<uint32_t>(tensor._version());
    }
  }
  at::Tensor call_unpack_hook() override {
    if (slot_) {
      return store_->take(*slot_);
    }
    check_unchanged(stays_, version_);
    return stays_;
  }

 private:
  std::shared_ptr<OffloadStore> store_;
  std::shared_ptr<Slot> slot_;
  at::Tensor stays_;
  uint32_t version_ = 0;
};

OffloadStore::OffloadStore(const std::vector<at::Tensor>& parameters, OffloadOptions options)
    : options_(std::move(options)) {
  for (const at::Tensor& parameter : parameters) {
    if (parameter.has_storage()) {
      weights_.insert(parameter.storage().unsafeGetStorageImpl());
    }
  }
}

std::unique_ptr<torch::autograd::SavedVariableHooks> OffloadStore::make() {
  const std::lock_guard<std::mutex> lock(mutex_);
  move_waiting(/*all=*/false);
  return std::make_unique<Holder>(shared_from_this());
}

void OffloadStore::between_operators() {
  const std::lock_guard<std::mutex> lock(mutex_);
  move_waiting(/*all=*/true);
}

OffloadActivations::Figures OffloadStore::figures() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return figures_;
}

bool OffloadStore::moves(const at::Tensor& tensor) const {
  return tensor.has_storage() && tensor.is_floating_point() && !tensor._is_zerotensor() &&
         static_cast<int64_t>(tensor.nbytes()) >= options_.min_bytes() &&
         weights_.count(tensor.storage().unsafeGetStorageImpl()) == 0 &&
         tensor.is_non_overlapping_and_dense();
}

/// After a backward all slots are dead, so a store that lives for many steps does not grow.
void OffloadStore::forget_dead_slots() {
  while (!slots_.empty() && slots_.back().expired()) {
    slots_.pop_back();
  }
  constexpr size_t kSpare = 256;
  if (by_address_.size() > 2 * slots_.size() + kSpare) {
    for (auto known = by_address_.begin(); known != by_address_.end();) {
      known = known->second.expired() ? by_address_.erase(known) : std::next(known);
    }
  }
}

std::shared_ptr<OffloadStore::Slot> OffloadStore::add(const at::Tensor& tensor) {
  const std::lock_guard<std::mutex> lock(mutex_);
  forget_dead_slots();
  std::weak_ptr<Slot>& known = by_address_[tensor.const_data_ptr()];
  std::shared_ptr<Slot> slot = known.lock();
  if (!slot || !slot->holds(tensor)) {
    const auto bytes = static_cast<int64_t>(tensor.nbytes());
    if (bytes > options_.max_bytes() - added_bytes_) {
      return nullptr;
    }
    added_bytes_ += bytes;
    slot = std::make_shared<Slot>(tensor, slots_.size());
    slots_.push_back(slot);
    known = slot;
    if (LateFill::is_possible(tensor)) {
      waiting_.emplace_back(LateFill(), slot);
    } else {
      move(*slot);
    }
  }
  ++slot->holders;
  return slot;
}

bool OffloadStore::Slot::holds(const at::Tensor& tensor) const {
  return source.is_of(tensor) && version == static_cast<uint32_t>(tensor._version()) &&
         (copy.has_value() ? copy->is_like(tensor) : waiting.is_same(tensor));
}

/// A tensor with another version by now is not copied; backward throws.
void OffloadStore::move(Slot& slot) {
  if (!slot.copy.has_value() && static_cast<uint32_t>(slot.waiting._version()) == slot.version) {
    slot.copy.emplace(slot.waiting);
    ++figures_.tensors;
    figures_.bytes += static_cast<int64_t>(slot.waiting.nbytes());
    slot.waiting.reset();
  }
}

void OffloadStore::move_waiting(bool all) {
  std::size_t moved = 0;
  for (; moved < waiting_.size() && (all || waiting_[moved].first.is_over()); ++moved) {
    if (const std::shared_ptr<Slot> slot = waiting_[moved].second.lock()) {
      move(*slot);
    }
  }
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(moved));
}

at::Tensor OffloadStore::take(Slot& slot) {
  const std::lock_guard<std::mutex> lock(mutex_);
  move(slot);
  if (!slot.copy.has_value()) {
    check_unchanged(slot.waiting, slot.version);
  }
  const bool is_first = slot.taken % slot.holders == 0;
  figures_.loads += is_first ? 1 : 0;
  figures_.prefetched += is_first && slot.copy->is_loading() ? 1 : 0;
  ++slot.taken;
  slot.copy->load();
  at::Tensor tensor = slot.copy->wait();
  if (slot.taken % slot.holders == 0) {
    slot.copy->unload();
  }
  int64_t ahead = options_.prefetch();
  for (std::size_t i = slot.index; i-- > 0 && ahead > 0;) {
    const std::shared_ptr<Slot> next = slots_[i].lock();
    if (next && next->copy.has_value()) {
      next->copy->load();
      --ahead;
    }
  }
  return tensor;
}

}  // namespace lockstep::activation
