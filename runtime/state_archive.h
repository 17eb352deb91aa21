#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace lockstep {

/// Saves, checks or loads the state of a component. The component names each piece of its state
/// once, in one function. The archive decides what a call does, depending on the pass.
///
///   void visit_state(StateArchive& archive) { archive.tensor(name + ".exp_avg", moment); ... }
///
/// While loading(), a call writes the value before it returns. A separate check pass compares all
/// names and sizes first, so state is never loaded in part.
/// Names: parameter, dot, kind ("encoder.weight.exp_avg"). A kind contains no dot. Ranks: every
/// rank visits the same names; with part() a rank passes only the elements that it keeps. Threads:
/// one.
class StateArchive {
 public:
  virtual ~StateArchive() = default;

  enum class Pass {
    save,   // calls read the values
    check,  // calls compare names and sizes with the saved ones; no value changes
    load,   // calls write the values
  };
  virtual Pass pass() const = 0;
  bool saving() const { return pass() == Pass::save; }
  bool loading() const { return pass() == Pass::load; }

  /// True if a value of this name is saved. Must not be called while saving.
  virtual bool has(const std::string& name) const = 0;

  /// A tensor that is equal on all ranks, of any dense strides. On loading, floating-point types
  /// are converted to the tensor's dtype.
  virtual void tensor(const std::string& name, const at::Tensor& tensor) = 0;

  /// This rank's part of a tensor that is distributed over ranks. `elements` (1-dimensional) are
  /// the elements from index `begin` on of a tensor with the sizes and strides of `like`, in the
  /// memory order of `like`; a rank may have none. Any other distribution can load them.
  virtual void part(const std::string& name, const at::Tensor& elements, int64_t begin,
                    const at::Tensor& like) = 0;

  virtual void number(const std::string& name, int64_t& value) = 0;
  virtual void real(const std::string& name, double& value) = 0;
};

}  // namespace lockstep
