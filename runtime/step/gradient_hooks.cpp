#include <lockstep/collectives/check.h>
#include <lockstep/runtime/step/impl/gradient_hooks.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace lockstep::detail {
namespace {

class Hook final : public torch::autograd::PostAccumulateGradHook {
 public:
  Hook(std::shared_ptr<const std::function<void(int)>> callback, int index)
      : callback_(std::move(callback)), index_(index) {}
  void operator()(const torch::autograd::Variable&) override { (*callback_)(index_); }

 private:
  std::shared_ptr<const std::function<void(int)>> callback_;
  int index_;
};

}  // namespace

void require_unhooked(const ModelTensor& parameter) {
  LOCKSTEP_CHECK(torch::autograd::impl::post_acc_grad_hooks(parameter.tensor) == nullptr,
                 "parameter ", parameter.name,
                 " already has a gradient hook: the model is wrapped by another DataParallel or "
                 "Trainer. Destroy that one first");
}

GradientHooks::GradientHooks(const std::vector<ModelTensor>& parameters,
                             std::function<void(int)> on_gradient) {
  const auto callback = std::make_shared<const std::function<void(int)>>(std::move(on_gradient));
  for (size_t i = 0; i < parameters.size(); ++i) {
    torch::autograd::impl::set_post_acc_grad_hooks(
        parameters[i].tensor, std::make_unique<Hook>(callback, static_cast<int>(i)));
    hooked_.push_back(parameters[i].tensor);
  }
}

GradientHooks::~GradientHooks() {
  for (const at::Tensor& tensor : hooked_) {
    torch::autograd::impl::set_post_acc_grad_hooks(tensor, nullptr);
  }
}

}  // namespace lockstep::detail
