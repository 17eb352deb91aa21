#pragma once

static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/model.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/step/impl/trainable.h>

#include <optional>
#include <unordered_set>
#include <vector>

namespace lockstep::detail {

/// Whether a Trainer's model still is what the Trainer was made of: each trained parameter in the
/// arena's memory, and no parameter new. torch::load, Module::to(dtype) and set_data
/// give a parameter memory of its own; the Trainer would go on to train memory that the model no
/// longer computes with.
/// Reads no element, so nothing waits for a device. Ranks: local. Threads: one.
class ModelWatch {
 public:
  /// Memory that a parameter had for a while, until bring_back(): aliases may still use it.
  struct Follower {
    void point() const;
    at::Tensor parameter;
    c10::Storage storage;
  };

  /// After the parameters moved into the arena. New parameters are looked for in the first window
  /// and in every `period`-th: the walk through the modules takes a microsecond or two for each.
  /// `followers`: of the watch before this one.
  ModelWatch(Model model, const Trainable& trainable, int64_t period,
             std::vector<Follower> followers = {});

  /// The first parameter that left the arena, and what to call. Some nanoseconds a parameter.
  std::optional<Error> departure() const;
  /// The first parameter that was added since. Walks through all modules.
  std::optional<Error> addition() const;
  /// Throws departure(), and where it is due addition(). Before each micro-batch.
  void require_unchanged(bool window_begins);

  /// Throws Error naming the first tensor whose values cannot be taken over: another size, no
  /// floating dtype, fp32 bytes in a 16-bit tensor, an alias that cannot follow.
  void require_adoptable() const;
  /// Lays all parameters into the arena again, marks of Precision::keep_fp32 included.
  void bring_back();
  const std::vector<Follower>& followers() const { return followers_; }

 private:
  struct Place {
    std::string name;
    at::Tensor parameter;
    at::Tensor home;  // an alias of what the parameter was made
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
