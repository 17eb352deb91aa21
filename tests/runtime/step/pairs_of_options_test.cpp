// Each two options together train, with the bits of a run without those that only save memory or
// time, or are refused by name.
#include <lockstep/collectives/exceptions.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <cctype>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "shared_runs.h"
#include "test_device.h"

namespace lockstep {
namespace {

using testing::runtime;

struct Choice {
  std::string name;
  std::function<void(TrainerOptions&)> set;
  bool changes_no_bits = false;
};

std::vector<Choice> choices() {
  const auto level = [](const std::string& name, const Precision& precision) {
    return Choice{name, [=](TrainerOptions& o) { o.precision(testing::at_scale(precision)); },
                  false};
  };
  return {
      {"shard_optimizer", [](TrainerOptions& o) { o.shard_optimizer(true).share_weights(false); },
       true},
      {"share_weights", [](TrainerOptions& o) { o.shard_optimizer(true).share_weights(true); },
       true},
      {"offload_states", [](TrainerOptions& o) { o.offload_states(true); }, true},
      {"activation_budget", [](TrainerOptions& o) { o.activation_budget("least"); }, true},
      {"memory", [](TrainerOptions& o) { o.memory("1 GiB"); }, true},
      {"cuda_graph", [](TrainerOptions& o) { o.cuda_graph(true); }, true},
      {"compare_replicas_every", [](TrainerOptions& o) { o.compare_replicas_every(1); }, true},
      {"accumulate", [](TrainerOptions& o) { o.accumulate(2); }},
      {"losses", [](TrainerOptions& o) { o.losses(2); }},
      {"ema", [](TrainerOptions& o) { o.ema(0.9); }},
      {"clip_grad_norm", [](TrainerOptions& o) { o.clip_grad_norm(0.1); }},
      {"clip_grad_value", [](TrainerOptions& o) { o.clip_grad_value(0.01); }},
      {"unused", [](TrainerOptions& o) { o.unused(UnusedParameters::detect); }},
      {"uneven_data", [](TrainerOptions& o) { o.uneven_data(true); }},
      {"reproducible", [](TrainerOptions& o) { o.reproducible(true); }},
      {"local_updates", [](TrainerOptions& o) { o.local_updates(LocalUpdates(2)); }},
      level("wire", Precision::O0().wire(at::kHalf)),
      level("O1", Precision::O1(at::kBFloat16)),
      level("O2", Precision::O2(at::kBFloat16)),
      level("remainders", Precision::O2(at::kBFloat16).remainders()),
      level("stochastic_rounding", Precision::O3(at::kBFloat16).stochastic_rounding()),
  };
}

/// Without underscores, as prose has the names.
std::string letters(const std::string& text) {
  std::string result;
  for (const char each : text) {
    if (std::isalnum(static_cast<unsigned char>(each)) != 0) {
      result += static_cast<char>(std::tolower(each));
    }
  }
  return result;
}

struct Trained {
  std::string error;  // empty: it trained
  at::Tensor weights, masters, averages;

  bool same_bits(const Trained& other) const {
    return error.empty() && other.error.empty() && at::equal(weights, other.weights) &&
           at::equal(masters, other.masters) && at::equal(averages, other.averages);
  }
};

torch::nn::Sequential make_model() {
  at::manual_seed(11);
  torch::nn::Sequential model;
  for (int i = 0; i < 4; ++i) {
    model->push_back(torch::nn::Linear(i == 0 ? 4 : 16, i == 3 ? 2 : 16));
    model->push_back(torch::nn::Tanh());
  }
  model->to(testing::device());
  return model;
}

at::Tensor on_host(const at::Tensor& tensor) {
  return tensor.detach().cpu().clone();
}

/// Four updates.
Trained train(const std::vector<const Choice*>& chosen) {
  auto options = TrainerOptions().buckets(testing::small_buckets());
  for (const Choice* choice : chosen) {
    choice->set(options);
  }
  Trained result;
  try {
    torch::nn::Sequential model = make_model();
    Trainer trainer(runtime(), model, AdamW(1e-2).weight_decay(0.1), options);
    for (int64_t step = 0; step < 4 * options.accumulate(); ++step) {
      const testing::Batch batch = testing::mlp_batch(step, runtime().rank());
      trainer.step({batch.x, batch.y}, [&](const std::vector<at::Tensor>& inputs) {
        const at::Tensor loss =
            (model->forward(inputs[0]).to(at::kFloat) - inputs[1]).square().mean();
        return options.losses() == 2 ? Loss::several({loss, loss * 0.5}) : Loss(loss);
      });
    }
    EXPECT_EQ(trainer.updates(), 4);
    result.weights = on_host(testing::flat(model->parameters()));
    result.masters = on_host(testing::flat_masters(trainer));
    result.averages =
        options.ema() > 0.0 ? on_host(testing::flat(trainer.averaged())) : result.weights;
  } catch (const Error& error) {
    result.error = error.what();
  }
  return result;
}

/// What is left of the choices that change bits.
std::vector<const Choice*> of_other_bits(const std::vector<const Choice*>& chosen) {
  std::vector<const Choice*> result;
  for (const Choice* choice : chosen) {
    if (!choice->changes_no_bits) {
      result.push_back(choice);
    }
  }
  return result;
}

bool names_one(const std::string& error, const std::vector<const Choice*>& chosen) {
  const std::string text = letters(error);
  for (const Choice* choice : chosen) {
    if (text.find(letters(choice->name)) != std::string::npos) {
      return true;
    }
  }
  return false;
}

bool is_level(const Choice& choice) {
  TrainerOptions changed;
  choice.set(changed);
  return changed.precision().describe() != TrainerOptions().precision().describe();
}

TEST(PairsOfOptions, TrainWithTheBitsOfARunWithoutWhatSavesMemoryOrAreRefusedByName) {
  const std::vector<Choice> all = choices();
  std::vector<std::string> refused;
  int trained = 0;
  for (size_t a = 0; a < all.size(); ++a) {
    for (size_t b = a; b < all.size(); ++b) {
      if (a != b && is_level(all[a]) && is_level(all[b])) {
        continue;  // one option
      }
      const std::vector<const Choice*> pair = a == b ? std::vector<const Choice*>{&all[a]}
                                                     : std::vector<const Choice*>{&all[a], &all[b]};
      const std::string name = all[a].name + (a == b ? "" : " + " + all[b].name);
      const Trained both = train(pair);
      if (!both.error.empty()) {
        EXPECT_TRUE(names_one(both.error, pair)) << name << ": " << both.error;
        refused.push_back(name);
        continue;
      }
      ++trained;
      const Trained plain = train(of_other_bits(pair));
      EXPECT_EQ(plain.error, "") << name;
      EXPECT_TRUE(both.same_bits(plain)) << name;
    }
  }
  if (runtime().rank() == 0) {
    std::cout << trained << " pairs trained, " << refused.size() << " were refused:\n";
    for (const std::string& name : refused) {
      std::cout << "  " << name << "\n";
    }
  }
}

}  // namespace
}  // namespace lockstep
