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

/// Recompute differs from forward; what() says where.
class Mismatch : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Fills a region's slots, in order, with the tensors that autograd saves during recompute.
class SlotFiller final : public SavedTensorPolicy {
 public:
  struct Rules {
    bool check;             // compare count and layouts
    bool early_stop;        // stop by an exception once all needed slots are filled
    bool forward_finished;  // forward has all its slots: more are a mismatch
  };

  SlotFiller(std::vector<SavedSlot>& slots, const std::vector<KeptCall>& kept, Rules rules);

  std::unique_ptr<torch::autograd::SavedVariableHooks> make() override;
  void between_operators() override;

  /// The KeptCall of forward's next call of keep(); null after the last one.
  const KeptCall* next_kept();

  /// Call in a catch block around the function.
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
  std::optional<LateFill> late_;  // the last save, if its operator may still run
  bool stopped_ = false;
};

}  // namespace lockstep::activation
