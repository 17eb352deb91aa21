#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace lockstep {

/// Takes a component's state, or gives it back: the component names each piece of its state once,
/// in one function, and the archive decides what that means (saved, compared with what is saved, or
/// loaded).
///
///   void visit_state(StateArchive& archive) { archive.tensor(name + ".exp_avg", moment); ... }
///
/// While loading(), values are there as soon as the call returns; before that all names and sizes
/// were compared in a pass of their own, so nothing is loaded in part.
/// Names: parameter, dot, kind ("encoder.weight.exp_avg"); a kind has no dot. Ranks: every rank
/// names the same, but part() only what it keeps. Threads: one.
class StateArchive {
 public:
  virtual ~StateArchive() = default;

  enum class Pass {
    save,   // the calls read
    check,  // nothing moves: names and sizes are compared with what is saved
    load,   // the calls write
  };
  virtual Pass pass() const = 0;
  bool saving() const { return pass() == Pass::save; }
  bool loading() const { return pass() == Pass::load; }

  /// Whether something of this name is saved. Not while saving.
  virtual bool has(const std::string& name) const = 0;

  /// A tensor that all ranks have alike, of any dense strides; floating types are converted to the
  /// tensor's own when loaded.
  virtual void tensor(const std::string& name, const at::Tensor& tensor) = 0;

  /// What this rank keeps of a tensor that is spread over ranks: `elements` (1-dimensional) are
  /// those from `begin` on of a tensor with the sizes and strides of `like`, in the order in which
  /// that has them in memory. Any other distribution can load them.
  virtual void part(const std::string& name, const at::Tensor& elements, int64_t begin,
                    const at::Tensor& like) = 0;

  virtual void number(const std::string& name, int64_t& value) = 0;
  virtual void real(const std::string& name, double& value) = 0;
};

}  // namespace lockstep
