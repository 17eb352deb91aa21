// Gradients whose strides are not those of their parameter: what is copied.
#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>
#include <lockstep/runtime/data_parallel.h>
#include <lockstep/runtime/trainer.h>
#include <torch/csrc/autograd/custom_function.h>

#include <atomic>
#include <cstring>

#include "runtime/models.h"
#include "test_names.h"
#include "test_runtime.h"

namespace lockstep {
namespace {

std::atomic<int64_t> allocations{0};

/// Counts calls of aten::empty_strided, by which a gradient gets memory in another order.
class CountAllocations {
 public:
  CountAllocations() {
    allocations = 0;
    handle_ = at::addGlobalCallback(at::RecordFunctionCallback(
        [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
          if (std::strcmp(function.name(), "aten::empty_strided") == 0) {
            ++allocations;
          }
          return nullptr;
        }));
  }
  ~CountAllocations() { at::removeCallback(handle_); }
  CountAllocations(const CountAllocations&) = delete;
  CountAllocations& operator=(const CountAllocations&) = delete;

 private:
  at::CallbackHandle handle_;
};

/// A loss whose gradient for `weight` is the tensor given, as it lies in memory.
struct GivenGradient : torch::autograd::Function<GivenGradient> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& weight,
                            const at::Tensor& gradient) {
    context->saved_data["gradient"] = gradient;
    return weight.sum();
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 const torch::autograd::variable_list&) {
    const at::Tensor given = context->saved_data["gradient"].toTensor();
    const at::Tensor fresh =
        given.new_empty({0}).set_(given.clone().storage(), 0, given.sizes(), given.strides());
    return {fresh, at::Tensor()};
  }
};

struct Step {
  int64_t allocations = 0;
  at::Tensor weight;
};

/// One step of a Trainer whose only weight gets this gradient.
Step step_with(const at::Tensor& weight, const at::Tensor& gradient) {
  Runtime runtime = testing::solo_runtime();
  const auto model = std::make_shared<OneWeight>(weight.clone(at::MemoryFormat::Preserve));
  Trainer trainer(runtime, model, SGD(0.5));
  const auto step = [&] {
    trainer.step([&] { return GivenGradient::apply(model->weight, gradient); });
  };
  step();
  const CountAllocations counted;
  step();
  return {allocations, model->weight.detach().clone()};
}

TEST(GradientLayout, AStrideOfADimensionOfSizeOneCostsNoCopy) {
  const at::Tensor weight = at::ones({4, 6, 1, 1});
  const at::Tensor gradient = at::arange(24).to(at::kFloat).view({4, 6, 1, 1});
  const at::Tensor same_elements = gradient.as_strided({4, 6, 1, 1}, {6, 1, 6, 6});
  const Step plain = step_with(weight, gradient);
  const Step other = step_with(weight, same_elements);
  EXPECT_EQ(other.allocations, plain.allocations);
  EXPECT_TRUE(at::equal(other.weight, plain.weight));
  EXPECT_EQ(plain.weight[1][0][0][0].item<float>(), 1.0F - 2 * 0.5F * 6.0F);
}

TEST(GradientLayout, AnotherOrderInMemoryIsPutInOrder) {
  const at::Tensor weight = at::ones({4, 6, 2, 1});
  const at::Tensor gradient = at::arange(48).to(at::kFloat).view({4, 6, 2, 1});
  const Step plain = step_with(weight, gradient);
  const Step other = step_with(weight, gradient.contiguous(at::MemoryFormat::ChannelsLast));
  EXPECT_TRUE(at::equal(other.weight, plain.weight));
}

TEST(GradientLayout, DataParallelKeepsAGradientThatDiffersInSuchAStrideOnly) {
  const auto model = std::make_shared<OneWeight>(at::ones({4, 6, 1, 1}));
  DataParallel parallel(Communicator::solo(), model, DataParallelOptions().wire(at::kBFloat16));
  const at::Tensor gradient = at::arange(24).to(at::kFloat).view({4, 6, 1, 1});
  GivenGradient::apply(model->weight, gradient.as_strided({4, 6, 1, 1}, {6, 1, 6, 6})).backward();
  const void* memory = model->weight.grad().const_data_ptr();
  parallel.finish();
  EXPECT_EQ(model->weight.grad().const_data_ptr(), memory);
  EXPECT_TRUE(at::equal(model->weight.grad(), gradient));
}

}  // namespace
}  // namespace lockstep
