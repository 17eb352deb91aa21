#pragma once

#include <lockstep/amp/model.h>

#include <functional>
#include <vector>

namespace lockstep {

/// Calls `on_gradient(index)` each time a backward has finished accumulating into parameter
/// `index`'s grad(), on the thread that runs that backward.
/// Throws Error if a parameter is already hooked by another live wrapper. The destructor removes
/// every hook.
class GradientHooks {
 public:
  GradientHooks(const std::vector<ModelTensor>& parameters, std::function<void(int)> on_gradient);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  std::vector<at::Tensor> hooked_;
};

}  // namespace lockstep
