#include <c10/core/GradMode.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/runtime/evaluation_scopes.h>
#include <lockstep/runtime/storage/impl/flat.h>
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

/// Of averages that are sharded, no rank has more than one whole bucket at a time.
AveragedWeights::AveragedWeights(const Trainer& trainer, const Model& model) {
  trainer.impl().require_averages("AveragedWeights");
  const c10::AutoGradMode no_grad(false);
  const detail::TrainingStorage& storage = trainer.impl().storage;
  const std::vector<ModelTensor>& trained = storage.trainable().parameters;
  const detail::NamedTensors buffers = storage.averaged_buffers().named();
  const detail::Agreement agreement(trainer.runtime().control());
  agreement.attempt("using the averaged weights", [&] {
    std::map<std::string, at::Tensor> weights;
    for (const auto* list : {&model.parameters(), &model.buffers()}) {
      for (const ModelTensor& entry : *list) {
        weights.emplace(entry.name, entry.tensor.detach());
      }
    }
    const auto save = [&](const std::string& name, at::IntArrayRef sizes) {
      const auto weight = weights.find(name);
      LOCKSTEP_CHECK(
          weight != weights.end() && weight->second.sizes() == sizes, name,
          " is averaged by the Trainer, but the model has nothing of this name and size; "
          "pass the model of the Trainer");
      saved_.emplace_back(weight->second, weight->second.clone());
    };
    for (const ModelTensor& entry : trained) {
      save(entry.name, entry.tensor.sizes());
    }
    for (const auto& [name, average] : buffers) {
      save(name, average.sizes());
    }
  });
  lent_ = storage.written().lend();
  const std::vector<BucketPlan>& plans = storage.reducer().plans();
  try {
    for (size_t b = 0; b < plans.size(); ++b) {
      const at::Tensor flat = storage.arena().whole(detail::Arena::State::averages, b);
      for (const Slot& slot : plans[b].slots) {
        const auto i = static_cast<size_t>(slot.parameter);
        saved_[i].first.copy_(detail::shaped_view(flat, slot.offset, trained[i].tensor));
      }
    }
  } catch (...) {
    restore();
    throw;
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    saved_[trained.size() + i].first.copy_(buffers[i].second);
  }
  detail::note_writes({});  // LibTorch knows of them
}

AveragedWeights::~AveragedWeights() {
  restore();
}

void AveragedWeights::restore() {
  const c10::AutoGradMode no_grad(false);
  for (const auto& [weight, copy] : saved_) {
    weight.copy_(copy);
  }
  detail::note_writes({});
}

}  // namespace lockstep
