#include <c10/core/GradMode.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/runtime/evaluation_scopes.h>
#include <lockstep/runtime/storage/impl/versions.h>
#include <lockstep/runtime/trainer.h>
#include <lockstep/runtime/trainer/impl/trainer_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/nn/module.h>

#include <map>
#include <string>

namespace lockstep {

/// Module::train() passes on to submodules. Parents come first, so that each submodule ends with
/// its own mode.
EvalMode::EvalMode(torch::nn::Module& module) {
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes;
  for (const auto& submodule : module.modules(/*include_self=*/false)) {
    modes.emplace_back(submodule, submodule->is_training());
  }
  restore_ = [&module, own = module.is_training(), modes = std::move(modes)] {
    module.train(own);
    for (const auto& [submodule, mode] : modes) {
      submodule->train(mode);
    }
  };
  module.eval();
}

/// A frozen torch::jit module has no mode.
EvalMode::EvalMode(const torch::jit::Module& module) {
  std::vector<std::pair<torch::jit::Module, bool>> modes;
  for (const torch::jit::Module& part : module.modules()) {
    if (part.type()->hasAttribute("training")) {
      modes.emplace_back(part, part.attr("training").toBool());
    }
  }
  for (auto& [part, mode] : modes) {
    part.setattr("training", false);
  }
  restore_ = [modes = std::move(modes)]() mutable {
    for (auto& [part, mode] : modes) {
      part.setattr("training", mode);
    }
  };
}

EvalMode::~EvalMode() {
  restore_();
}

AveragedWeights::AveragedWeights(const Trainer& trainer, const Model& model) {
  const auto averages = trainer.averaged();
  const c10::AutoGradMode no_grad(false);
  const detail::Agreement agreement(trainer.runtime().control());
  agreement.attempt("using the averaged weights", [&] {
    std::map<std::string, at::Tensor> weights;
    for (const auto* list : {&model.parameters(), &model.buffers()}) {
      for (const ModelTensor& entry : *list) {
        weights.emplace(entry.name, entry.tensor.detach());
      }
    }
    for (const auto& [name, average] : averages) {
      const auto weight = weights.find(name);
      LOCKSTEP_CHECK(
          weight != weights.end() && weight->second.sizes() == average.sizes(), name,
          " is averaged by the Trainer, but the model has nothing of this name and size; "
          "pass the model of the Trainer");
      saved_.emplace_back(weight->second, weight->second.clone());
    }
  });
  lent_ = trainer.impl().storage.written().lend();
  for (size_t i = 0; i < averages.size(); ++i) {
    saved_[i].first.copy_(averages[i].second);
  }
  detail::note_writes({});  // LibTorch knows of them
}

AveragedWeights::~AveragedWeights() {
  const c10::AutoGradMode no_grad(false);
  for (const auto& [weight, copy] : saved_) {
    weight.copy_(copy);
  }
  detail::note_writes({});
}

}  // namespace lockstep
