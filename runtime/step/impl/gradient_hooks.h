#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/amp/model.h>

#include <functional>
#include <vector>

namespace lockstep::detail {

/// Calls `on_gradient(index)` each time a backward has finished accumulating into parameter
/// `index`'s grad(), on the thread that runs that backward.
/// The parameters must not be hooked yet (require_unhooked). The destructor removes every hook.
class GradientHooks {
 public:
  GradientHooks(const std::vector<ModelTensor>& parameters, std::function<void(int)> on_gradient);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  std::vector<at::Tensor> hooked_;
};

/// Throws Error naming the parameter if another live wrapper has hooked it.
void require_unhooked(const ModelTensor& parameter);

}  // namespace lockstep::detail
