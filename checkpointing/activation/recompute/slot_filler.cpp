#include <c10/util/StringUtil.h>
#include <lockstep/checkpointing/activation/recompute/slot_filler.h>

#include <exception>

namespace lockstep::activation {

namespace {

// A std::exception, so that a backward inside the region ends cleanly, too.
class StopRecompute : public std::exception {
 public:
  const char* what() const noexcept override { return "recompute has all that backward needs"; }
};

}  // namespace

/// Held by a node of recompute's graph: the tensor, for a backward inside the region. Detached,
/// since the node of an output would otherwise own itself.
class SlotFiller::Keeper final : public torch::autograd::SavedVariableHooks {
 public:
  explicit Keeper(SlotFiller& filler) : filler_(filler) {}
  void call_pack_hook(const at::Tensor& tensor) override {
    tensor_ = LateFill::detached(tensor);
    filler_.fill(tensor, tensor_);
  }
  at::Tensor call_unpack_hook() override { return tensor_; }

 private:
  SlotFiller& filler_;
  at::Tensor tensor_;
};

SlotFiller::SlotFiller(std::vector<SavedSlot>& slots, const std::vector<KeptCall>& kept,
                       Rules rules)
    : slots_(slots), kept_(kept), rules_(rules), needed_(slots.size()) {
  while (needed_ > 0 && !slots_[needed_ - 1].needed) {
    --needed_;
  }
}

std::unique_ptr<torch::autograd::SavedVariableHooks> SlotFiller::make() {
  if (late_.has_value() && late_->is_over()) {
    between_operators();
  }
  return std::make_unique<Keeper>(*this);
}

void SlotFiller::between_operators() {
  late_.reset();
  stop_if_complete();
}

// True for a tensor from outside the region, such as a frozen weight: it has its data from forward.
bool SlotFiller::is_filled(const at::Tensor& saved) const {
  return !LateFill::is_possible(saved) ||
         (next_ <= slots_.size() && slots_[next_ - 1].storage.is_of(saved));
}

void SlotFiller::stop_if_complete() {
  if (rules_.early_stop && !late_.has_value() && next_ >= needed_) {
    stopped_ = true;
    throw StopRecompute();
  }
}

void SlotFiller::fill(const at::Tensor& saved, const at::Tensor& kept) {
  const std::size_t index = next_++;
  if (index < slots_.size()) {
    compare(saved);
    SavedSlot& slot = slots_[index];
    if (slot.needed) {
      slot.recomputed = kept;
      slot.recomputed_version = static_cast<uint32_t>(kept._version());
    }
  } else if (rules_.check && rules_.forward_finished) {
    throw Mismatch(c10::str("recompute saves more tensors than the ", slots_.size(),
                            " of forward; slot ", index, " would be ", TensorLayout(saved).text()));
  }
  if (!is_filled(saved)) {
    late_.emplace();
  }
  stop_if_complete();
}

void SlotFiller::compare(const at::Tensor& saved) const {
  const std::size_t index = next_ - 1;
  const SavedSlot& slot = slots_[index];
  const TensorLayout layout(saved);
  if (rules_.check && !(layout == slot.layout)) {
    throw Mismatch(c10::str("slot ", index, " was ", slot.layout.text(), " in forward and is ",
                            layout.text(),
                            " in recompute: the function must do the same each time"));
  }
  check_same_version(saved);
}

// Only tensors from outside the region have forward's memory: weights, captured inputs, masks.
void SlotFiller::check_same_version(const at::Tensor& saved) const {
  const SavedSlot& slot = slots_[next_ - 1];
  if (slot.storage.is_of(saved) && saved._version() != slot.version) {
    throw Mismatch(c10::str("slot ", next_ - 1, " (", slot.layout.text(),
                            "), a tensor from outside the region, is modified in place after "
                            "forward (version ",
                            slot.version, ", now ", saved._version(),
                            "): run backward first, or give the region a clone"));
  }
}

const KeptCall* SlotFiller::next_kept() {
  if (next_kept_ < kept_.size()) {
    return &kept_[next_kept_++];
  }
  if (rules_.check && rules_.forward_finished) {
    throw Mismatch(
        c10::str("recompute calls keep() more often than the ", kept_.size(), " times of forward"));
  }
  return nullptr;
}

void SlotFiller::rethrow_unless_stopped() const {
  if (!stopped_) {
    throw;
  }
}

void SlotFiller::check_count() const {
  if (rules_.check && next_ < needed_) {
    throw Mismatch(c10::str("recompute saves ", next_, " tensors, forward saved ", slots_.size(),
                            "; slot ", next_, " (", slots_[next_].layout.text(), ") is missing"));
  }
}

}  // namespace lockstep::activation
