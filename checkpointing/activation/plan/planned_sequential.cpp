// The only file that depends on how LibTorch's AnyModule is built: it holds a placeholder, whose
// subclass for a module's type T has one member, a std::shared_ptr<T>, which at<T>() reads once the
// placeholder's type_info is that of T.
#include <ATen/core/Tensor.h>
#include <c10/util/Type.h>
#include <lockstep/checkpointing/activation/impl/planned_sequential.h>
#include <lockstep/collectives/check.h>
#include <torch/nn/modules/linear.h>
#include <torch/version.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <typeinfo>
#include <utility>
#include <vector>

namespace lockstep::detail {

namespace {

using torch::nn::AnyModule;
using torch::nn::AnyModulePlaceholder;
using torch::nn::AnyValue;

constexpr const char* list_blocks =
    ": list its blocks as a PlannedChain that forward() calls, and give that to "
    "TrainerOptions().activation_chain()";

/// Reaches AnyModule::content_: access is not checked where a template is instantiated explicitly.
template <std::unique_ptr<AnyModulePlaceholder> AnyModule::*member>
struct Content {
  friend std::unique_ptr<AnyModulePlaceholder>& content(AnyModule& module) {
    return module.*member;
  }
};
std::unique_ptr<AnyModulePlaceholder>& content(AnyModule& module);
template struct Content<&AnyModule::content_>;

/// A placeholder that at<T>() can read for any T.
struct ReadableHolder : AnyModulePlaceholder {
  ReadableHolder(const std::type_info& type, std::shared_ptr<void> of_that_type)
      : AnyModulePlaceholder(type), module(std::move(of_that_type)) {}
  std::shared_ptr<void> module;
};
static_assert(sizeof(torch::nn::AnyModuleHolder<torch::nn::LinearImpl, at::Tensor>) ==
                  sizeof(AnyModulePlaceholder) + sizeof(std::shared_ptr<void>),
              "AnyModuleHolder has another member than the shared_ptr of its module");

class PlannedElement final : public ReadableHolder {
 public:
  PlannedElement(std::unique_ptr<AnyModulePlaceholder> original, PlannedChain chain,
                 std::size_t stage)
      : ReadableHolder(original->type_info, module_of(*original)),
        original_(std::move(original)),
        chain_(std::move(chain)),
        stage_(stage) {}

  AnyValue forward(std::vector<AnyValue>&& arguments) override {
    auto* input = arguments.size() == 1 ? arguments[0].try_get<at::Tensor>() : nullptr;
    if (input == nullptr || !chain_.plans()) {
      LOCKSTEP_CHECK(
          input != nullptr || stage_ > 0 || chain_.budget().is_automatic() || !chain_.plans(),
          "activation_budget(", chain_.budget().text(), "): ", c10::demangle(type_info.name()),
          ", the first module of the Sequential, is "
          "called with ",
          arguments.size(),
          " arguments, where a chain is measured on "
          "one tensor",
          list_blocks);
      return original_->forward(std::move(arguments));
    }
    return AnyValue(chain_.run_stage(stage_, std::move(*input)));
  }

  std::shared_ptr<torch::nn::Module> ptr() override { return original_->ptr(); }
  std::unique_ptr<AnyModulePlaceholder> copy() const override {
    return std::make_unique<PlannedElement>(original_->copy(), chain_, stage_);
  }
  std::unique_ptr<AnyModulePlaceholder> clone_module(
      std::optional<torch::Device> device) const override {
    return original_->clone_module(device);
  }

  bool is_of(const PlannedChain& chain) const { return chain_.is_same(chain); }
  std::unique_ptr<AnyModulePlaceholder> release() { return std::move(original_); }

 private:
  static std::shared_ptr<void> module_of(AnyModulePlaceholder& holder) {
    const std::shared_ptr<void>& module = static_cast<ReadableHolder&>(holder).module;
    const std::shared_ptr<torch::nn::Module> known = holder.ptr();
    LOCKSTEP_CHECK(!known.owner_before(module) && !module.owner_before(known),
                   "activation_budget: LibTorch ", TORCH_VERSION,
                   " holds the modules of a Sequential in a way that lockstep does not know",
                   list_blocks);
    return module;
  }

  std::unique_ptr<AnyModulePlaceholder> original_;
  PlannedChain chain_;
  std::size_t stage_;
};

}  // namespace

PlannedSequential::PlannedSequential(torch::nn::SequentialImpl& sequential)
    : sequential_(&sequential), keep_alive_(sequential.weak_from_this().lock()) {
  torch::nn::SequentialImpl* const modules = &sequential;
  chain_ = PlannedChain(chain_of(modules));
  std::size_t stage = 0;
  for (AnyModule& module : sequential) {
    std::unique_ptr<AnyModulePlaceholder>& held = content(module);
    held = std::make_unique<PlannedElement>(std::move(held), chain_, stage++);
  }
}

PlannedSequential::~PlannedSequential() {
  for (AnyModule& module : *sequential_) {
    std::unique_ptr<AnyModulePlaceholder>& held = content(module);
    auto* element = dynamic_cast<PlannedElement*>(held.get());
    if (element != nullptr && element->is_of(chain_)) {
      held = element->release();
    }
  }
}

}  // namespace lockstep::detail
