#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/checkpointing/activation/impl/region.h>
#include <lockstep/checkpointing/activation/impl/stored_call.h>

#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::activation {

/// The region of one checkpoint() call: stores the function and its inputs for recompute.
template <class Function, class... Inputs>
class FunctionRegion final : public Region {
 public:
  template <class F>
  FunctionRegion(const CheckpointOptions& options, F&& function,
                 const std::decay_t<Inputs>&... inputs)
      : Region(options), call_(std::forward<F>(function), inputs...) {
    for (const at::Tensor& tensor : call_.take_tensors()) {
      save_input(tensor);
    }
  }

  decltype(auto) run_first(Inputs&&... inputs) {
    using Result = typename StoredCall<Function, Inputs...>::Result;
    Forward forward(*this);
    if constexpr (std::is_void_v<Result>) {
      call_.first(std::forward<Inputs>(inputs)...);
      forward.finish();
    } else {
      Result result = call_.first(std::forward<Inputs>(inputs)...);
      forward.finish();
      return static_cast<Result>(result);
    }
  }

 private:
  void run_again(const std::vector<at::Tensor>& tensors) override {
    static_cast<void>(call_.again(tensors));
  }
  std::vector<at::Tensor> module_buffers() const override { return call_.buffers(); }
  const std::type_info& function_type() const override { return typeid(Function); }

  StoredCall<Function, Inputs...> call_;
};

}  // namespace lockstep::activation
