#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/model.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/step/impl/trainable.h>

#include <optional>
#include <unordered_set>
#include <vector>

namespace lockstep::detail {

/// Detects changes of a Trainer's model: a trained parameter that left the arena's memory, or a new
/// parameter. torch::load, Module::to(dtype) and set_data give a parameter memory of its own; the
/// Trainer would then train memory that the model no longer computes with. Reads no element, so
/// nothing waits for a device. Ranks: local. Threads: one.
class ModelWatch {
 public:
  /// Memory that a parameter had until bring_back(). point() makes its aliases follow the
  /// parameter.
  struct Follower {
    void point() const;
    at::Tensor parameter;
    c10::Storage storage;
  };

  /// Construct it after the parameters moved into the arena. It looks for new parameters in the
  /// first window and in every `period`-th one: the walk takes a microsecond or two per module.
  /// `followers`: those of the watch before this one.
  ModelWatch(Model model, const Trainable& trainable, int64_t period,
             std::vector<Follower> followers = {});

  /// The Error of the first parameter that left the arena. Takes some nanoseconds a parameter.
  std::optional<Error> departure() const;
  /// The Error of the first added parameter. Walks through all modules.
  std::optional<Error> addition() const;
  /// Throws departure() and, if it is due, addition(). Call it before each micro-batch.
  void require_unchanged(bool window_begins);

  /// Throws Error naming the first tensor whose values adopt_weights() cannot take: another size,
  /// no floating dtype, fp32 bytes in a 16-bit tensor, an alias that cannot follow.
  void require_adoptable() const;
  /// Points all parameters into the arena again, and restores marks of Precision::keep_fp32.
  void bring_back();
  const std::vector<Follower>& followers() const { return followers_; }

 private:
  struct Place {
    std::string name;
    at::Tensor parameter;
    at::Tensor home;  // an alias of the parameter in the arena
  };
  Model model_;
  std::vector<Place> places_;
  std::vector<Follower> followers_;
  std::vector<at::Tensor> kept_fp32_;
  std::unordered_set<const void*> known_;  // by TensorImpl
  int64_t period_;
  int64_t windows_ = 0;
};

}  // namespace lockstep::detail
