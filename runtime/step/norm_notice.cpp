#include <ATen/record_function.h>
#include <c10/util/ScopeExit.h>
#include <c10/util/StringUtil.h>
#include <lockstep/runtime/step/impl/norm_notice.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <memory>
#include <string_view>
#include <utility>

#ifndef NDEBUG
#error "LibTorch is built with NDEBUG: without it at::RecordFunction has another layout here"
#endif

namespace lockstep::detail {
namespace {

/// aten::layer_norm, aten::native_batch_norm, aten::_fused_rms_norm, ...
bool is_norm_operator(std::string_view name) {
  static constexpr std::array<std::string_view, 5> kNorms = {
      "batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm"};
  return std::any_of(kNorms.begin(), kNorms.end(), [&](std::string_view norm) {
    return name.find(norm) != std::string_view::npos;
  });
}

}  // namespace

struct NormNotice::Observer {
  static thread_local NormNotice* current;

  static std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& function) {
    if (current == nullptr || !is_norm_operator(function.name())) {
      return nullptr;
    }
    auto& lowered = current->lowered_;
    for (const c10::IValue& input : function.inputs()) {
      if (!input.isTensor() || !input.toTensor().defined() || !input.toTensor().has_storage()) {
        continue;
      }
      const auto found = lowered.find(input.toTensor().const_data_ptr());
      if (found != lowered.end()) {
        current->note(found->second, function.name());
        lowered.erase(found);
      }
    }
    return nullptr;
  }
};

thread_local NormNotice* NormNotice::Observer::current = nullptr;

NormNotice::NormNotice(const Model& model, const Precision& precision)
    : level_(precision.describe()) {
  for (const ModelTensor& entry : model.parameters()) {
    ModelTensor as_norm = entry;
    as_norm.in_norm = true;
    if (at::isReducedFloatingType(entry.tensor.scalar_type()) && entry.tensor.numel() > 0 &&
        precision.storage_dtype(as_norm) != precision.storage_dtype(entry)) {
      lowered_.emplace(entry.tensor.const_data_ptr(), entry);
    }
  }
}

Loss NormNotice::observe(const std::function<Loss()>& closure) {
  if (lowered_.empty()) {
    return closure();
  }
  const at::CallbackHandle handle =
      at::addThreadLocalCallback(at::RecordFunctionCallback(&Observer::on_start)
                                     .needsInputs(true)
                                     .scopes({at::RecordScope::FUNCTION}));
  NormNotice* const outer = std::exchange(Observer::current, this);
  const auto end = c10::make_scope_exit([&] {
    Observer::current = outer;
    at::removeCallback(handle);
    if (!found_.empty()) {
      std::cerr << "lockstep: " << text() << std::endl;  // also where the closure throws
    }
  });
  return closure();
}

void NormNotice::note(const ModelTensor& weight, const char* op) {
  const std::string owner = weight.owners.empty() ? "" : weight.owners.front();
  found_.push_back(c10::str(weight.name, owner.empty() ? "" : " of class " + owner, " (", op, ")"));
  if (advice_.empty()) {
    advice_ = c10::str("Precision::norms(\"", owner.empty() ? weight.name : owner, "\")",
                       " (all parameters of that class) or norms(\"", weight.name, "\")");
  }
}

std::string NormNotice::text() const {
  constexpr size_t kShown = 3;
  const std::vector<std::string> shown(
      found_.begin(), found_.begin() + static_cast<int64_t>(std::min(kShown, found_.size())));
  return c10::str(
      level_, " stores in 16 bits, though an operator of a norm uses it: ", c10::Join(", ", shown),
      found_.size() > kShown ? c10::str(" and ", found_.size() - kShown, " more") : "",
      ". By its class it is no norm. ", advice_,
      " keeps it in fp32 and counts it for no_decay_on_norms_and_biases(); "
      "keep_fp32() does the former alone");
}

}  // namespace lockstep::detail
