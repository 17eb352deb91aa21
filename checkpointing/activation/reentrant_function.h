#pragma once

#include <lockstep/checkpointing/activation/reentrant_region.h>
#include <lockstep/checkpointing/activation/stored_call.h>

#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

namespace lockstep::activation {

/// The reentrant region of one call.
template <class Function, class... Inputs>
class ReentrantFunction final : public ReentrantRegion {
 public:
  using Call = StoredCall<Function, Inputs...>;
  using Result = typename Call::Result;

  /// Calls the function, as a region where its results can be followed: they are returned by value
  /// and TensorVisitor knows their type.
  static Result run(const CheckpointOptions& options, Function function, Inputs&&... inputs) {
    if constexpr (std::is_void_v<Result> || std::is_reference_v<Result>) {
      return call(function, std::forward<Inputs>(inputs)...);
    } else if constexpr (IsOpaque<Result>::value) {
      return call(function, std::forward<Inputs>(inputs)...);
    } else {
      Call stored(function, inputs...);
      std::vector<at::Tensor> tensors = stored.take_tensors();
      const std::shared_ptr<ReentrantFunction> region(
          new ReentrantFunction(options, std::move(stored), std::move(tensors)),
          torch::autograd::deleteNode);
      if (!region->is_needed()) {
        return call(function, std::forward<Inputs>(inputs)...);
      }
      Result result = region->call_.first(std::forward<Inputs>(inputs)...);
      region->attach(pointers_to(result));
      return result;
    }
  }

 private:
  ReentrantFunction(const CheckpointOptions& options, Call stored, std::vector<at::Tensor> tensors)
      : ReentrantRegion(options, std::move(tensors), stored.parameters()),
        call_(std::move(stored)) {}

  template <class T>
  static std::vector<at::Tensor*> pointers_to(T& result) {
    std::vector<at::Tensor*> tensors;
    visit_tensors(result, [&](at::Tensor& tensor) { tensors.push_back(&tensor); });
    return tensors;
  }

  std::vector<at::Tensor> run_again(const std::vector<at::Tensor>& inputs) override {
    if constexpr (std::is_void_v<Result> || std::is_reference_v<Result>) {
      return {};
    } else {
      Result result = call_.again(inputs);
      std::vector<at::Tensor> outputs;
      visit_tensors(result, [&](at::Tensor& tensor) { outputs.push_back(tensor); });
      return outputs;
    }
  }
  std::vector<at::Tensor> module_buffers() const override { return call_.buffers(); }
  const std::type_info& function_type() const override { return typeid(Function); }

  Call call_;
};

}  // namespace lockstep::activation
