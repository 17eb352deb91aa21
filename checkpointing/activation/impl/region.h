#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>
#include <lockstep/checkpointing/activation/checkpoint_options.h>
#include <lockstep/checkpointing/activation/impl/engine_hook.h>
#include <lockstep/checkpointing/activation/impl/execution_state.h>
#include <lockstep/checkpointing/activation/impl/kept_call.h>
#include <lockstep/checkpointing/activation/impl/operator_trace.h>
#include <lockstep/checkpointing/activation/impl/rng_state.h>
#include <lockstep/checkpointing/activation/impl/saved_slot.h>
#include <lockstep/checkpointing/activation/impl/scratch_buffers.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <typeinfo>
#include <vector>

namespace lockstep::activation {

class SlotFiller;

/// One forward of a checkpointed function. Each tensor that autograd saves inside the function is
/// replaced by a numbered slot. When backward first asks for a slot, the region runs the function
/// again, which fills all slots. A slot releases its tensor when backward takes it. Another graph
/// task, or a second request for a slot, recomputes again. A region may retain its tensors instead,
/// as autograd does: it is then not recomputed.
///
/// Lifetime: the slots that autograd holds share the region, so the region is destroyed with the
/// graph.
/// Threads: forward on one thread; backward on any thread, one at a time (a lock).
class Region : public SavedTensorPolicy, public std::enable_shared_from_this<Region> {
 public:
  /// Whether autograd records operators at present; if not, no region is needed.
  static bool wanted();

  /// Open while the function's forward runs. finish() marks the return of the function, and throws
  /// if the function changed its own inputs.
  class Forward {
   public:
    explicit Forward(Region& region);
    void finish();

   private:
    Region& region_;
    HookScope hooks_;
    std::optional<OperatorTrace> trace_;
    std::optional<ScratchBuffers> scratch_;
  };

  std::unique_ptr<torch::autograd::SavedVariableHooks> make() override;

  /// Adds a keep() call of forward, for recompute.
  void add_kept(KeptCall call);

 protected:
  explicit Region(CheckpointOptions options);

  /// Keeps an input as autograd saves tensors, so that an enclosing region may drop it.
  void save_input(const at::Tensor& input);

  /// Runs the function on the inputs that were passed to save_input(), in that order.
  virtual void run_again(const std::vector<at::Tensor>& inputs) = 0;
  virtual std::vector<at::Tensor> module_buffers() const = 0;
  virtual const std::type_info& function_type() const = 0;

  /// From now on slots hold their tensors, until drop_retained().
  void retain() noexcept { retained_ = true; }
  bool retains() const noexcept { return retained_; }
  void drop_retained() noexcept;

  void check_inputs_unchanged(const char* when) const;
  /// Sets whether forward has added all slots.
  void set_forward_finished(bool finished) noexcept { forward_finished_ = finished; }

 private:
  class Holder;
  struct Input {
    torch::autograd::SavedVariable saved;
    TensorIdentity identity;
    bool requires_grad;
  };

  std::size_t add_slot(const at::Tensor& tensor);
  void release(std::size_t slot) noexcept;
  at::Tensor unpack(std::size_t slot);
  void recompute();
  void fill_slots(SlotFiller& filler);
  std::vector<at::Tensor> unpack_inputs();
  void drop_recomputed() noexcept;
  std::vector<at::Tensor> buffers() const;
  std::string name() const;
  std::string trace_report() const;

  const CheckpointOptions options_;
  const bool early_stop_;
  std::optional<RngState> rng_;
  ExecutionState execution_;
  std::vector<Input> inputs_;
  std::vector<SavedSlot> slots_;
  std::vector<KeptCall> kept_;
  bool forward_finished_ = false;
  bool retained_ = false;
  std::recursive_mutex mutex_;  // recursive: recompute may drop an older graph of this region
  int graph_task_ = -1;
  std::vector<std::string> forward_operators_;
  std::vector<std::string> recompute_operators_;
};

}  // namespace lockstep::activation
