#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/model.h>
#include <lockstep/amp/precision.h>
#include <lockstep/runtime/loss.h>

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

namespace lockstep::detail {

/// Finds weights that the precision lowers to 16 bits because their class is not known as a norm,
/// although the program passes them to a norm operator. Watches the operators of one forward on
/// this thread. Does not find a norm that a program writes out in other operators. Ranks: local.
/// Threads: one.
class NormNotice {
 public:
  NormNotice(const Model& model, const Precision& precision);

  /// Runs the closure under an observer. Prints a line on standard error if it finds such weights.
  Loss observe(const std::function<Loss()>& closure);

 private:
  struct Observer;
  void note(const ModelTensor& weight, const char* op);
  std::string text() const;

  std::string level_;
  std::unordered_map<const void*, ModelTensor> lowered_;  // by the first byte
  std::vector<std::string> found_;                        // "ln.weight of Ln (aten::layer_norm)"
  std::string advice_;
};

}  // namespace lockstep::detail
