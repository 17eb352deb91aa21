#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/runtime/trainer/own/no_host_reads.h>
#include <torch/library.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

namespace lockstep::detail {
namespace {

// A key below autograd, so that this sees the operators that devices run, also those of backward.
// LibTorch itself registers nothing for it.
constexpr auto kKey = c10::DispatchKey::Fake;

/// Host memory that holds only numbers of closures. Shared by all threads: backward has its own.
class Constants {
 public:
  static Constants& instance() {
    static Constants constants;
    return constants;
  }
  void begin() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++users_;
  }
  void end() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (--users_ == 0) {
      memory_.clear();
    }
  }
  bool has(const at::Tensor& tensor) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return tensor.has_storage() && memory_.count(tensor.storage().unsafeGetStorageImpl()) != 0;
  }
  void note(const at::Tensor& tensor, bool constant) {
    if (!tensor.has_storage()) {
      return;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    if (constant) {
      memory_.emplace(tensor.storage().unsafeGetStorageImpl(), tensor.storage());
    } else {
      memory_.erase(tensor.storage().unsafeGetStorageImpl());
    }
  }

 private:
  std::mutex mutex_;
  int users_ = 0;
  std::map<const c10::StorageImpl*, c10::Storage>
      memory_;  // kept alive, so that no other gets its address
};

template <typename Function>
void for_each_tensor(at::ArrayRef<c10::IValue> values, const Function& function) {
  for (const c10::IValue& value : values) {
    if (value.isTensor() && value.toTensor().defined()) {
      function(value.toTensor());
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorVector()) {
        function(tensor);
      }
    } else if (value.isOptionalTensorList()) {
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorVector()) {
        if (tensor.has_value() && tensor->defined()) {
          function(*tensor);
        }
      }
    }
  }
}

bool is_number(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl()->is_wrapped_number();
}

[[noreturn]] void refuse(const c10::OperatorHandle& op, const at::Tensor& of_host) {
  throw Error(c10::str(op.schema().name(), " has a tensor of the host (", of_host.scalar_type(),
                       ", sizes ", of_host.sizes(),
                       ") beside one of the device, and the captured step would use what it is now "
                       "for ever: pass it in the inputs of step(inputs, closure)"),
              ExitCode::usage);
}

/// The host tensors among an operator's arguments.
struct HostArguments {
  explicit HostArguments(at::ArrayRef<c10::IValue> arguments) {
    for_each_tensor(arguments, [&](const at::Tensor& tensor) {
      on_device = on_device || tensor.is_cuda();
      if (!tensor.is_cpu() || is_number(tensor)) {
        return;
      }
      const bool constant = Constants::instance().has(tensor);
      all_constant = all_constant && constant;
      any = tensor;
      if (!constant || tensor.dim() > 0) {
        values = tensor;
      }
    });
  }
  bool on_device = false;
  bool all_constant = true;
  at::Tensor any;
  at::Tensor values;  // one that is no constant
};

void refuse_host_reads(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                       torch::jit::Stack* stack) {
  const HostArguments host(torch::jit::last(*stack, op.schema().arguments().size()));
  if (host.on_device) {
    const bool copies = op.schema().name() == "aten::copy_";
    const at::Tensor& read = copies ? host.any : host.values;
    if (read.defined()) {
      refuse(op, read);
    }
  }
  op.redispatchBoxed(keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey), stack);
  for_each_tensor(torch::jit::last(*stack, op.schema().returns().size()),
                  [&](const at::Tensor& result) {
                    if (result.is_cpu()) {
                      Constants::instance().note(result, host.all_constant);
                    }
                  });
}

}  // namespace

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_host_reads>());
}

NoHostReads::NoHostReads() : guard_(kKey) {
  Constants::instance().begin();
}

NoHostReads::~NoHostReads() {
  Constants::instance().end();
}

}  // namespace lockstep::detail
