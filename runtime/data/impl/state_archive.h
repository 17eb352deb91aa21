#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

namespace lockstep {

/// A piece of the state of a component.
struct StateEntry {
  enum class Kind {
    tensor,
    passing,  // a tensor whose memory is there during the call alone
    part,
    number,
    real
  };

  std::string name;
  Kind kind;
  /// Where the value is. Of a number: a copy, 0-dimensional on the host, int64 or double. On the
  /// meta device, if the pass only names.
  at::Tensor place;
  int64_t begin = 0;  // of a part: index of its first element, in the memory order of `like`
  at::Tensor like;    // of a part: has the sizes and strides of the whole tensor

  bool is_part() const { return kind == Kind::part; }
  const at::Tensor& whole() const { return is_part() ? like : place; }
};

/// Visits the state of a component, to save, check or load it. The component names each piece of
/// its state once, in one function. What happens to a piece is a function that the archive is made
/// with: see StateCopy, save_state(), check_state() and load_state().
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
  enum class Pass {
    list,   // calls name what save will read; passing() tensors need no memory
    save,   // calls read the values
    check,  // calls compare names and sizes with the saved ones; no value changes
    load,   // calls write the values
  };

  /// `each`: takes the value of a piece, compares it, or writes it, as the pass says. `has`:
  /// whether a value of this name is saved; none are while saving.
  StateArchive(Pass pass, std::function<void(const StateEntry&)> each,
               std::function<bool(const std::string&)> has = {});

  Pass pass() const { return pass_; }
  bool saving() const { return pass_ == Pass::list || pass_ == Pass::save; }
  bool loading() const { return pass_ == Pass::load; }
  /// True if passing() may get tensors of the meta device.
  bool only_names() const { return pass_ == Pass::list || pass_ == Pass::check; }

  /// True if a value of this name is saved. Must not be called while saving.
  bool has(const std::string& name) const { return has_ && has_(name); }

  /// A tensor that is equal on all ranks, of any dense strides. On loading, floating-point types
  /// are converted to the tensor's dtype.
  void tensor(const std::string& name, const at::Tensor& tensor);
  /// The same for a tensor that is made for this call and goes with it, such as the whole of a
  /// sharded array: so that no rank has all of them at once. Collective while saving, if making it
  /// is.
  void passing(const std::string& name, const at::Tensor& tensor);

  /// This rank's part of a tensor that is distributed over ranks. `elements` (1-dimensional) are
  /// the elements from index `begin` on of a tensor with the sizes and strides of `like`, in the
  /// memory order of `like`; a rank may have none. Any other distribution can load them.
  void part(const std::string& name, const at::Tensor& elements, int64_t begin,
            const at::Tensor& like);

  void number(const std::string& name, int64_t& value);
  void real(const std::string& name, double& value);

 private:
  Pass pass_;
  std::function<void(const StateEntry&)> each_;
  std::function<bool(const std::string&)> has_;
};

/// Names state to an archive.
using StateVisit = std::function<void(StateArchive&)>;

}  // namespace lockstep
