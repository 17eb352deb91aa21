// Trains small models for scripts/exactness:
//   exactness_program LEAVES FOLDER [resume=RANKS] [only=WORD]
// Runs each model, precision and option on the ranks that it was started on. Rank 0 prints a line
// "row MODEL|PRECISION|OPTION|DIGEST" for each: the digest of weights, buffers and averages after
// the last update. Leaves snapshots of the middle of an epoch in FOLDER/RANKS. With resume=RANKS it
// only goes on from those that so many ranks left. only=WORD: only rows with this word in their
// model or precision. FOLDER/RANKS-MODEL-PRECISION.jsonl is the digest log of a run that saved,
// FOLDER/RANKSfromRANKS-MODEL-PRECISION.jsonl that of a run that went on.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <lockstep/checkpointing/activation/checkpoint.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/storage/impl/replicas.h>
#include <lockstep/runtime/trainer.h>

#include <cstdio>
#include <cstring>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "small_models.h"

namespace lockstep {
namespace {

using testing::small_model;
using testing::SmallModel;

constexpr int64_t kUpdates = 5;
constexpr int64_t kSaved = 2;  // updates before the snapshot: in the middle of an epoch

/// Samples that are augmented with random numbers. An epoch ends with fewer samples than leaves
/// would have.
struct Samples {
  int64_t count;
  int64_t size() const { return count; }
  std::pair<at::Tensor, int64_t> get(size_t index) const {
    const at::Tensor x =
        at::randn({SmallModel::inputs}, at::detail::createCPUGenerator(1000 + index));
    return {x + 0.1 * at::randn({SmallModel::inputs}),
            static_cast<int64_t>(index * index) % SmallModel::classes};
  }
};

struct Run {
  std::string model;
  std::string precision;
  std::string option;
  std::string text() const { return model + "|" + precision + "|" + option; }
  bool is(const char* word) const { return option == word; }
};

Precision precision_of(const std::string& name) {
  if (name == "O0 fp16 wire") {
    return Precision::O0().wire(at::kHalf);
  }
  return name == "O1 bf16" ? Precision::O1(at::kBFloat16) : Precision::O0();
}

TrainerOptions options_of(const Run& run, int64_t leaves, const Runtime& runtime) {
  auto options = TrainerOptions().precision(precision_of(run.precision)).clip_grad_norm(0.5);
  if (run.is("not reproducible")) {
    return options.accumulate(leaves / runtime.size());
  }
  options.reproducible(true).leaves(leaves);
  return run.is("ZeRO-1, EMA") ? options.shard_optimizer(true).ema(0.9) : options;
}

Loss loss_of(SmallModel& model, const Run& run, const at::Tensor& x, const at::Tensor& y) {
  const auto forward = [&model](const at::Tensor& input) { return model.forward(input); };
  const at::Tensor scores =
      (run.is("checkpointing") ? checkpoint(forward, x) : model.forward(x)).to(at::kFloat);
  if (!run.is("Loss::sum")) {
    return at::cross_entropy_loss(scores, y);
  }
  // Leaves of other weights: only samples of the first two classes count.
  const at::Tensor each = at::cross_entropy_loss(scores, y, {}, at::Reduction::None);
  const at::Tensor counts = (y < 2).to(at::kFloat);
  return Loss::sum((each * counts).sum(), counts.sum().item<double>());
}

/// The digest after `kUpdates` updates; a snapshot at update `kSaved` on the way.
uint64_t train(Runtime& runtime, const Run& run, int64_t leaves, const std::string& folder,
               const std::string& from, const std::string& digests) {
  at::manual_seed(7);
  const auto model = small_model(run.model);
  Trainer trainer(runtime, model, AdamW(1e-2),
                  options_of(run, leaves, runtime).digest_log(digests).digest_every(1));
  auto loader = runtime.loader(Samples{7 * leaves + leaves / 3 + 1},
                               LoaderOptions().batch_size(2).shuffle(true).epochs(100).leaves(
                                   run.is("not reproducible") ? 0 : leaves));
  if (!from.empty()) {
    LOCKSTEP_CHECK(trainer.resume(from).resumed, "there is no snapshot in ", from);
  }
  for (auto& [x, y] : loader) {
    // Random numbers of the training loop, too.
    const at::Tensor input = x + 0.1 * at::randn_like(x);
    const at::Tensor target = y;
    const StepReport report =
        trainer.step([&, target] { return loss_of(*model, run, input, target); });
    if (!report.closes_update()) {
      continue;
    }
    if (trainer.updates() == kSaved && from.empty() && !folder.empty()) {
      trainer.resume(folder);  // names the folder
      trainer.save();
      trainer.finish_saving();
    }
    if (trainer.updates() == kUpdates) {
      break;
    }
  }
  std::vector<at::Tensor> all;
  for (const auto& [name, master] : trainer.masters()) {
    all.push_back(master.contiguous());
  }
  for (const at::Tensor& buffer : model->buffers()) {
    all.push_back(buffer.contiguous());
  }
  if (run.is("ZeRO-1, EMA")) {
    for (const auto& [name, average] : trainer.averaged()) {
      all.push_back(average.contiguous());
    }
  }
  return detail::digest(all);
}

std::vector<Run> runs(bool resumes) {
  std::vector<Run> all;
  for (const char* model : {"mlp", "lstm", "conv", "transformer"}) {
    for (const char* precision : {"O0 fp32 wire", "O0 fp16 wire", "O1 bf16"}) {
      if (resumes) {
        all.push_back({model, precision, "resume elsewhere"});
        continue;
      }
      for (const char* option :
           {"dropout, clipping", "ZeRO-1, EMA", "Loss::sum", "checkpointing", "not reproducible"}) {
        all.push_back({model, precision, option});
      }
    }
  }
  return all;
}

std::string argument(int argc, char** argv, const std::string& name) {
  for (int i = 3; i < argc; ++i) {
    if (std::strncmp(argv[i], name.c_str(), name.size()) == 0) {
      return argv[i] + name.size();
    }
  }
  return {};
}

void run_all(Runtime& runtime, int argc, char** argv) {
  LOCKSTEP_CHECK(argc >= 3, "usage: exactness_program LEAVES FOLDER [resume=RANKS] [only=WORD]");
  const int64_t leaves = std::stoll(argv[1]);
  const std::string source = argument(argc, argv, "resume=");
  const std::string only = argument(argc, argv, "only=");
  for (const Run& run : runs(!source.empty())) {
    if ((run.model + run.precision).find(only) == std::string::npos) {
      continue;
    }
    const auto folder = [&](const std::string& ranks) {
      return std::string(argv[2]) + "/" + ranks + "-" + run.model + "-" + run.precision;
    };
    const bool saves = run.is("dropout, clipping");
    const std::string ranks = std::to_string(runtime.size());
    const uint64_t digest = train(
        runtime, run, leaves, saves ? folder(ranks) : "", source.empty() ? "" : folder(source),
        saves || !source.empty()
            ? folder(source.empty() ? ranks : ranks + "from" + source) + ".jsonl"
            : "");
    if (runtime.is_main()) {
      std::printf("row %s|%016llx\n", run.text().c_str(), static_cast<unsigned long long>(digest));
      std::fflush(stdout);
    }
  }
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run(argc, argv,
                       [&](lockstep::Runtime& runtime) { lockstep::run_all(runtime, argc, argv); });
}
