#pragma once

#include <lockstep/amp/model.h>
#include <lockstep/runtime/step/trainable.h>

#include <optional>
#include <unordered_set>
#include <vector>

namespace lockstep::detail {

/// Whether a Trainer's model still is what the Trainer was made of: each trained parameter the view
/// of the arena that it became, and no parameter new. torch::load, Module::to(dtype) and set_data
/// give a parameter memory of its own; the Trainer would go on to train memory that the model no
/// longer computes with.
/// Reads no element, so nothing waits for a device. Ranks: local. Threads: one.
class ModelWatch {
 public:
  /// After the parameters moved into the arena. New parameters are looked for in the first window
  /// and in every `period`-th: the walk through the modules takes a microsecond or two for each.
  ModelWatch(Model model, const Trainable& trainable, int64_t period);

  /// The first parameter that left the arena, and what to call. Some nanoseconds a parameter.
  std::optional<Error> departure() const;
  /// The first parameter that was added since. Walks through all modules.
  std::optional<Error> addition() const;
  /// Throws departure(), and where it is due addition(). Before each micro-batch.
  void require_unchanged(bool window_begins);

  /// Throws Error naming the first tensor whose values cannot be taken over: another size, no
  /// floating dtype, fp32 bytes in a 16-bit tensor.
  void require_adoptable() const;
  /// Makes all parameters views of the arena again, marks of Precision::keep_fp32 included.
  void bring_back() const;

 private:
  struct Place {
    std::string name;
    at::Tensor parameter;
    at::Tensor home;  // an alias of what the parameter was made
  };
  Model model_;
  std::vector<Place> places_;
  std::vector<at::Tensor> kept_fp32_;
  std::unordered_set<const void*> known_;  // by TensorImpl
  int64_t period_;
  int64_t windows_ = 0;
};

}  // namespace lockstep::detail
