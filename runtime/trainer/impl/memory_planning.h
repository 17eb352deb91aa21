#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/runtime/step/impl/activation_planning.h>
#include <lockstep/runtime/step/impl/training_storage.h>

#include <ATen/core/Tensor.h>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::detail {

/// Keeps a Trainer within TrainerOptions::memory. The Trainer begins with the options and the plan
/// of activations that need the least memory; on devices the activations move to the host
/// (OffloadActivations). The first window measures the stages of the chain, the next one its
/// micro-batches as a whole. If the activations that were moved have room on the device, they stay
/// there from then on, and one more window is measured. Then the fastest plan that fits is used. On
/// devices the states move from the host to the device a window later, if all ranks have room and
/// gain by it. Micro-batches are measured until the figures of report() are complete; if one needs
/// more than was predicted, the next plan gets less.
///
/// Each rank of a host gets an equal part of its node's budget, and plans by its own clock.
class MemoryPlanning {
 public:
  /// The options with which a run begins: those that need the least memory and change no bits.
  /// Without TrainerOptions::memory those that were asked for.
  static TrainerOptions smallest(const TrainerOptions& asked, const OptimizerSpec& optimizer,
                                 c10::Device device, int ranks);

  MemoryPlanning(const TrainerOptions& options, c10::Device device, const Agreement& agreement,
                 const ActivationPlanning& activations, TrainingStorage& storage);

  bool is_active() const { return !options_.memory().is_unlimited(); }
  /// Call it once the storage is made. Throws Error on every rank if the budget is too small for
  /// what a Trainer holds between two micro-batches. Collective.
  void begin();
  /// Call it before each window. Before one of the first it decides where the states of a device
  /// are. Collective.
  void begin_window();
  /// Runs a micro-batch, and measures it as long as figures are wanted. Returns true if it
  /// completes them.
  bool run(const std::function<void()>& micro_batch);
  /// Makes the plan for a micro-batch if the last one calls for another. Throws Error if none fits.
  /// Call it within the micro-batch, where the Error of one rank becomes that of all. Local.
  void plan();
  /// A table: what is kept, recomputed and offloaded, with the predicted and the measured peak.
  /// Empty without TrainerOptions::memory and before there is a plan. Of this rank.
  std::string report() const;

 private:
  /// What one place of the states allows.
  struct Choice {
    std::optional<CheckpointPlan> plan;  // of the chain, if there is one
    int64_t peak_bytes = 0;              // predicted, of a micro-batch
    double seconds = 0.0;                // of a window in the chain
    bool fits = false;
  };

  /// How many ranks share the budget in equal parts.
  int ranks() const;
  /// The part of this rank.
  int64_t budget() const;
  /// What this rank holds between micro-batches, with the states on the host or on the device.
  int64_t state_bytes(bool offloads) const;
  /// Bytes of frozen parameters and buffers.
  int64_t model_bytes() const;
  Choice choose(bool offloads) const;
  /// What must stay on the device although autograd saves it.
  std::vector<at::Tensor> model_tensors() const;
  /// Runs a micro-batch, with its activations on the host or on the device.
  void run_here(const std::function<void()>& micro_batch);
  /// What a micro-batch needs at least: one that measures the stages, or any later one.
  int64_t least_peak() const;
  /// Whether the activations that move to the host would fit on the device.
  bool have_activations_room() const;
  Error too_small(int64_t needed, const std::string& what) const;
  /// Seconds that the states take to the device and back.
  double copy_seconds() const;
  bool gains_on_device() const;
  void take_states_to_device();
  void write_plan_file() const;

  TrainerOptions options_;  // those that the run has now
  c10::Device device_;
  Agreement agreement_;
  const ActivationPlanning& activations_;
  TrainingStorage& storage_;
  bool moves_activations_;   // to the host
  int64_t host_room_;        // bytes of activations, at most
  int64_t moved_bytes_ = 0;  // of a micro-batch, the most of those so far
  int64_t windows_ = 0;
  std::optional<ActivationPlanning::Peaks> window_;  // of the open window, so far
  bool is_whole_ = true;                             // all of its micro-batches were measured
  std::optional<ActivationPlanning::Peaks> least_;   // of a window under the least plan
  std::size_t input_bytes_ = 0;                      // of the chain, in that window
  int64_t first_peak_ = 0;                           // of a micro-batch that measures the stages
  int64_t excess_ = 0;                               // of measured peaks over predicted ones
  std::optional<Choice> chosen_;
  bool is_due_ = false;
  int64_t measured_peak_ = 0;  // since there is a plan
  int64_t watched_ = 0;        // micro-batches since then
};

}  // namespace lockstep::detail
