#pragma once

#include <ATen/ATen.h>
#include <lockstep/checkpointing/snapshot/impl/folder_names.h>
#include <lockstep/checkpointing/snapshot/snapshot.h>
#include <lockstep/runtime/trainer.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "across_ranks.h"
#include "runtime/temporary_folder.h"

namespace lockstep::testing {

/// Everything that makes resuming hard: dropout, running statistics, a tied weight, a frozen one.
struct Awkward : torch::nn::Module {
  Awkward()
      : first(register_module("first", torch::nn::Linear(4, 6))),
        norm(register_module("norm", torch::nn::BatchNorm1d(6))),
        middle(register_module("middle", torch::nn::Linear(6, 6))),
        last(register_module("last", torch::nn::Linear(6, 2))) {
    tied = register_parameter("tied", middle->weight);
    frozen = register_parameter("frozen", at::ones({6}) * 0.3, /*requires_grad=*/false);
    to(device());
  }
  at::Tensor loss(const at::Tensor& x, const at::Tensor& y) {
    // As the module does it, but for one sample too.
    norm->num_batches_tracked += 1;
    at::Tensor h = at::batch_norm(first->forward(x), norm->weight, norm->bias, norm->running_mean,
                                  norm->running_var, /*training=*/true, 0.1, 1e-5, false);
    h = at::dropout(at::tanh(middle->forward(h)), 0.3, /*train=*/true);
    h = at::linear(h, tied) * frozen;
    return (last->forward(h).to(at::kFloat) - y).square().mean();
  }
  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Linear middle;
  torch::nn::Linear last;
  at::Tensor tied;
  at::Tensor frozen;
};

/// Samples that know their number.
struct Numbered {
  size_t count;
  std::vector<int64_t>* seen = nullptr;  // every index that is loaded

  size_t size() const { return count; }
  std::pair<at::Tensor, at::Tensor> get(size_t index) const {
    if (seen != nullptr) {
      seen->push_back(static_cast<int64_t>(index));
    }
    return {drawn_on_host({4}, index), drawn_on_host({2}, index + 1'000'000)};
  }
};

/// How runs are made that have to end alike.
struct Recipe {
  std::shared_ptr<OptimizerSpec> optimizer = AdamW(1e-2).clone();
  TrainerOptions options;
  std::function<bool(int64_t micro_batch)> overflows = [](int64_t) { return false; };
  size_t samples = 43;
  int64_t batch_size = 3;
  bool compare_ranks = true;
};

/// A whole training program but for its main().
class TrainingRun {
 public:
  TrainingRun(Runtime& runtime, Recipe recipe)
      : recipe_(std::move(recipe)),
        model((at::manual_seed(5), std::make_shared<Awkward>())),
        trainer(runtime, model, *recipe_.optimizer, recipe_.options),
        loader(runtime.loader(Numbered{recipe_.samples, &seen},
                              LoaderOptions()
                                  .batch_size(recipe_.batch_size)
                                  .shuffle(true)
                                  .epochs(1000)
                                  .compare_ranks(recipe_.compare_ranks))) {
    seen.clear();  // what ranks compared
  }

  /// Micro-batches until this many were run by this process and those it goes on from.
  void train_to(int64_t micro_batches) {
    for (auto& batch : loader) {
      train_one(batch);
      if (done == micro_batches) {
        break;
      }
    }
  }

  void train_one(const std::pair<at::Tensor, at::Tensor>& on_host) {
    const auto batch = trainer.to_device(on_host);
    const float factor = recipe_.overflows(done) ? std::numeric_limits<float>::infinity() : 1.0F;
    const StepReport report =
        trainer.step([&] { return model->loss(batch.first, batch.second) * factor; });
    losses.push_back(report.loss());
    ++done;
  }

  std::vector<int64_t> seen;
  std::vector<double> losses;
  int64_t done = 0;

 private:
  Recipe recipe_;

 public:
  std::shared_ptr<Awkward> model;
  Trainer trainer;
  Loader<Numbered> loader;
};

/// Where the snapshot of an update is.
inline std::string step_path(const std::string& folder, int64_t update) {
  return folder + "/" + snapshot::step_folder(update);
}

/// The digest of every tensor of a snapshot, by file and name: equal if and only if all state is.
inline std::map<std::string, std::string> digests(const std::string& path) {
  std::map<std::string, std::string> all;
  const Snapshot saved(path);
  for (const auto& [file, record] : saved.manifest().files) {
    for (const auto& [name, digest] : record.tensors) {
      all[record.section + "/" + std::to_string(record.rank) + "/" + name] = digest;
    }
  }
  return all;
}

inline void meet() {
  Communicator control = runtime().control();
  control.barrier().wait();
}

/// One folder for all ranks, gone at the end of the test on each.
class SharedFolder {
 public:
  SharedFolder() {
    Communicator control = runtime().control();
    path_ = control.all_gather_bytes(own_.path())[0];
  }
  ~SharedFolder() { meet(); }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  TemporaryFolder own_;
  std::string path_;
};

/// Saves after each of the updates 1 to `updates`.
inline void save_each(const std::string& folder, int64_t updates) {
  TrainingRun run(runtime(), {});
  run.trainer.resume(folder);
  for (int64_t update = 1; update <= updates; ++update) {
    run.train_to(update);
    run.trainer.save();
  }
}

}  // namespace lockstep::testing
