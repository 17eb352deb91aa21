#pragma once

#include <lockstep/checkpointing/activation/impl/engine_hook.h>
#include <lockstep/checkpointing/activation/impl/kept_call.h>
#include <lockstep/checkpointing/activation/impl/saved_slot.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

namespace lockstep::activation {

/// Recompute did not do what forward did; what() says where.
class Mismatch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Fills a region's slots, in order, with what autograd saves while the function runs again.
class SlotFiller final : public SavedTensorPolicy {
 public:
  struct Rules {
    bool check;             // compare count and layouts
    bool early_stop;        // leave the function by an exception once the needed slots are filled
    bool forward_finished;  // forward's slots are complete: more are a mismatch
  };

  SlotFiller(std::vector<SavedSlot>& slots, const std::vector<KeptCall>& kept, Rules rules);

  std::unique_ptr<torch::autograd::SavedVariableHooks> make() override;
  void between_operators() override;

  /// What forward's call of keep() number 0, 1, ... left; null past the last one so far.
  const KeptCall* next_kept();

  /// From a catch block around the function.
  void rethrow_unless_stopped() const;
  void check_count() const;

 private:
  class Keeper;
  void fill(const at::Tensor& saved, const at::Tensor& kept);
  bool is_filled(const at::Tensor& saved) const;
  void stop_if_complete();
  void compare(const at::Tensor& saved) const;
  void check_same_version(const at::Tensor& saved) const;

  std::vector<SavedSlot>& slots_;
  const std::vector<KeptCall>& kept_;
  const Rules rules_;
  std::size_t needed_;  // slots up to the last one that some node holds
  std::size_t next_ = 0;
  std::size_t next_kept_ = 0;
  std::optional<LateFill> late_;  // the last one, unless it is over
  bool stopped_ = false;
};

}  // namespace lockstep::activation
