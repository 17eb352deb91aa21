#include <c10/util/StringUtil.h>
#include <lockstep/checkpointing/activation/recompute/replay.h>

#include <exception>

namespace lockstep::activation {

namespace {

// A std::exception, so that a backward inside the region ends in good order too.
class StopRecompute : public std::exception {
 public:
  const char* what() const noexcept override { return "recompute has all that backward needs"; }
};

}  // namespace

/// What a node of recompute's own graph holds: the tensor, for a backward inside the region.
/// Detached, for an output's node would otherwise own itself.
class Region::Replay::Keeper final : public torch::autograd::SavedVariableHooks {
 public:
  explicit Keeper(Replay& replay) : replay_(replay) {}
  void call_pack_hook(const at::Tensor& tensor) override {
    tensor_ = LateFill::detached(tensor);
    replay_.fill(tensor, tensor_);
  }
  at::Tensor call_unpack_hook() override { return tensor_; }

 private:
  Replay& replay_;
  at::Tensor tensor_;
};

Region::Replay::Replay(std::vector<SavedSlot>& slots, const std::vector<KeptCall>& kept,
                       Rules rules)
    : slots_(slots), kept_(kept), rules_(rules), needed_(slots.size()) {
  while (needed_ > 0 && !slots_[needed_ - 1].needed) {
    --needed_;
  }
}

std::unique_ptr<torch::autograd::SavedVariableHooks> Region::Replay::make() {
  if (late_.has_value() && late_->is_over()) {
    between_operators();
  }
  return std::make_unique<Keeper>(*this);
}

void Region::Replay::between_operators() {
  late_.reset();
  stop_if_complete();
}

// A tensor from outside the region, such as a frozen weight, keeps what forward left in it.
bool Region::Replay::is_filled(const at::Tensor& saved) const {
  return !LateFill::is_possible(saved) ||
         (next_ <= slots_.size() && slots_[next_ - 1].storage.is_of(saved));
}

void Region::Replay::stop_if_complete() {
  if (rules_.early_stop && !late_.has_value() && next_ >= needed_) {
    stopped_ = true;
    throw StopRecompute();
  }
}

void Region::Replay::fill(const at::Tensor& saved, const at::Tensor& kept) {
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

void Region::Replay::compare(const at::Tensor& saved) const {
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

// Only tensors from outside the region use the same memory again: weights, captured inputs, masks.
void Region::Replay::check_same_version(const at::Tensor& saved) const {
  const SavedSlot& slot = slots_[next_ - 1];
  if (slot.storage.is_of(saved) && saved._version() != slot.version) {
    throw Mismatch(c10::str("slot ", next_ - 1, " (", slot.layout.text(),
                            "), a tensor from outside the region, is modified in place after "
                            "forward (version ",
                            slot.version, ", now ", saved._version(),
                            "): run backward first, or give the region a clone"));
  }
}

const KeptCall* Region::Replay::next_kept() {
  if (next_kept_ < kept_.size()) {
    return &kept_[next_kept_++];
  }
  if (rules_.check && rules_.forward_finished) {
    throw Mismatch(
        c10::str("recompute calls keep() more often than the ", kept_.size(), " times of forward"));
  }
  return nullptr;
}

void Region::Replay::rethrow_unless_stopped() const {
  if (!stopped_) {
    throw;
  }
}

void Region::Replay::check_count() const {
  if (rules_.check && next_ < needed_) {
    throw Mismatch(c10::str("recompute saves ", next_, " tensors, forward saved ", slots_.size(),
                            "; slot ", next_, " (", slots_[next_].layout.text(), ") is missing"));
  }
}

}  // namespace lockstep::activation
