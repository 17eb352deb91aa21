#include <lockstep/checkpointing/activation/impl/region.h>
#include <lockstep/checkpointing/activation/offload.h>
#include <lockstep/checkpointing/activation/offload/offload_store.h>
#include <lockstep/checkpointing/activation/recompute/slot_filler.h>
#include <lockstep/collectives/check.h>

namespace lockstep {

namespace {

std::shared_ptr<activation::OffloadStore> new_store(const std::vector<at::Tensor>& parameters,
                                                    const OffloadOptions& options) {
  LOCKSTEP_CHECK(options.min_bytes() >= 0 && options.prefetch() >= 0 && options.max_bytes() >= 0,
                 "OffloadOptions: min_bytes is ", options.min_bytes(), ", prefetch ",
                 options.prefetch(), " and max_bytes ", options.max_bytes(),
                 ", none may be negative");
  activation::SavedTensorPolicy* outer = activation::HookScope::top();
  LOCKSTEP_CHECK(dynamic_cast<activation::Region*>(outer) == nullptr &&
                     dynamic_cast<activation::SlotFiller*>(outer) == nullptr,
                 "OffloadActivations inside a checkpointed region: open it around the region, "
                 "whose inputs are then moved");
  return std::make_shared<activation::OffloadStore>(parameters, options);
}

}  // namespace

OffloadActivations::OffloadActivations(const std::vector<at::Tensor>& parameters,
                                       const OffloadOptions& options)
    : store_(new_store(parameters, options)), hooks_(store_.get()) {}

OffloadActivations::~OffloadActivations() {
  try {
    store_->between_operators();
  } catch (...) {
    // If the host has no memory for a tensor, the tensor stays on its device.
  }
}

OffloadActivations::Figures OffloadActivations::figures() const {
  return store_->figures();
}

}  // namespace lockstep
