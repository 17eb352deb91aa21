#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <lockstep/runtime/data/impl/mixed_seed.h>
#include <lockstep/runtime/data/impl/sample_random.h>
#include <torch/library.h>

#include <algorithm>

namespace lockstep {
namespace {

// A key above those of devices, autograd and autocast. LibTorch itself registers nothing for it;
// all operators pass over it except the random ones below.
constexpr auto kKey = c10::DispatchKey::DeferredInit;

thread_local SampleRandom* innermost = nullptr;

bool is_generator(const c10::Argument& argument) {
  const c10::TypePtr& type = argument.type();
  const auto optional = type->cast<c10::OptionalType>();
  return (optional ? optional->getElementType() : type)->kind() == c10::TypeKind::GeneratorType;
}

/// False without a tensor: such an operator creates one and fills it by another of these operators.
bool works_on_the_host(at::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& argument : arguments) {
    if (argument.isTensor() && argument.toTensor().defined()) {
      return argument.toTensor().is_cpu();
    }
  }
  return false;
}

/// Passes the sample's generator to a call that names none.
void draw_for_sample(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                     torch::jit::Stack* stack) {
  const std::vector<c10::Argument>& arguments = op.schema().arguments();
  c10::IValue* first = stack->data() + stack->size() - arguments.size();
  if (innermost != nullptr &&
      works_on_the_host(at::ArrayRef<c10::IValue>(first, arguments.size()))) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (is_generator(arguments[i]) && first[i].isNone()) {
        first[i] = innermost->generator();
      }
    }
  }
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
}

}  // namespace

TORCH_LIBRARY_IMPL(_, DeferredInit, library) {
  library.fallback(torch::CppFunction::makeFallthrough());
}

TORCH_LIBRARY_IMPL(aten, DeferredInit, library) {
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (name.getNamespace() != "aten" || !op) {
      continue;
    }
    const std::vector<c10::Argument>& arguments = op->schema().arguments();
    if (std::any_of(arguments.begin(), arguments.end(), is_generator)) {
      library.impl(c10::toString(name).c_str(),
                   torch::CppFunction::makeFromBoxedFunction<&draw_for_sample>());
    }
  }
}

uint64_t SampleSeeds::of(size_t index) const {
  return detail::mixed_seed(
      detail::mixed_seed(detail::mixed_seed(seed), static_cast<uint64_t>(epoch)), index);
}

uint64_t SampleSeeds::of(const std::vector<size_t>& indices) const {
  uint64_t all = of(indices.size());
  for (const size_t index : indices) {
    all = detail::mixed_seed(all, index);
  }
  return all;
}

SampleRandom::SampleRandom(uint64_t seed) : seed_(seed), outer_(innermost), guard_(kKey) {
  innermost = this;
}

SampleRandom::~SampleRandom() {
  innermost = outer_;
}

const at::Generator& SampleRandom::generator() {
  if (!generator_.defined()) {
    generator_ = at::detail::createCPUGenerator(seed_);
  }
  return generator_;
}

}  // namespace lockstep
