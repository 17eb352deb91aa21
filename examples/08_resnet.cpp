// ResNet-18 to 152 on CIFAR-10 or CIFAR-100: random crops and mirrored images, precisions O0 to O3,
// validation after each epoch, the best weights at the end, and fine-tuning.
//
//   lockstep run -n 2 -- build/examples/08_resnet --train data_batch_*.bin --test test_batch.bin
//       [--depth 50] [--precision O2 --dtype fp16] [--run runs/resnet --resume] ...
//   lockstep run -n 2 -- build/examples/08_resnet --train train.bin --test test.bin --classes 100
//       --run runs/finetuned --finetune runs/resnet --freeze-norms
//
// The log is in the folder --run, too: tensorboard --logdir runs/resnet
// It ends with the accuracy on the test images, as a table and in runs/resnet/result.json.

#include <lockstep/amp/optimizers.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/best_snapshot.h>
#include <lockstep/runtime/evaluate.h>
#include <lockstep/runtime/load_weights.h>
#include <lockstep/runtime/loader.h>
#include <lockstep/runtime/runtime.h>
#include <lockstep/runtime/train_epochs.h>
#include <lockstep/runtime/trainer.h>
#include <lockstep/runtime/trainer_options.h>
#include <torch/nn.h>

#include <algorithm>
#include <iostream>

#include "cifar_data.h"
#include "command_line.h"
#include "models/resnet.h"
#include "resnet_options.h"
#include "result_file.h"
#include "run_options.h"

namespace {

/// Loads weights from anywhere; the head may have other classes.
void load(ResNet& model, const std::string& path) {
  lockstep::snapshot::LoadOptions options;
  options.match = lockstep::snapshot::Match::partial;
  const auto report = lockstep::load_weights(model, path, options);
  const auto is_head = [](const std::string& name) { return name.rfind("fc.", 0) == 0; };
  LOCKSTEP_CHECK_CODE(report.missing.empty() &&
                          std::all_of(report.misshapen.begin(), report.misshapen.end(), is_head),
                      lockstep::ExitCode::snapshot, path,
                      ": are no weights of this ResNet: ", report.text());
}

void train(lockstep::Runtime& runtime, const Options& options) {
  const int64_t classes = options.size.classes;
  const auto [images, test_images] =
      options.synthetic ? std::pair(coloured_images(320, classes), coloured_images(100, classes))
                        : read_cifar(options.train, options.test, classes);
  auto loader =
      runtime.loader(AugmentedImages{images, !options.plain_images},
                     lockstep::LoaderOptions()
                         .batch_size(std::max<int64_t>(1, options.batch_size / runtime.size()))
                         .shuffle(true)
                         .drop_last(true)
                         .prefetch(2));
  const auto test_loader =
      runtime.validation_loader(test_images, lockstep::LoaderOptions().batch_size(100));

  ResNet model(options.size);
  if (!options.finetune.empty()) {
    load(model, options.finetune);
  }
  if (options.freeze_norms) {
    model->freeze_norms();
  }
  lockstep::Trainer trainer(
      runtime, model, lockstep::SGD(options.learning_rate).momentum(0.9).weight_decay(5e-4),
      lockstep::TrainerOptions()
          .precision(precision_of(options.precision))
          .schedule(lockstep::OneCycle(options.run.epochs * loader.batches_per_epoch()))
          .snapshots(options.run.snapshots()));
  std::cout << runtime.summary() << trainer.summary() << std::flush;
  const auto scores_of = [&](const auto& batch) {
    return model->forward(normalized(trainer.to_device(batch.first)));
  };
  const auto test = [&] {
    return lockstep::evaluate(trainer, model, test_loader, scores_of, lockstep::Accuracy(),
                              lockstep::MeanLoss());
  };
  Stopwatch watch;
  double seconds = 0.0;  // of the last epoch, without the test
  const auto end_of_epoch = [&] {
    seconds = watch.seconds();
    auto found = test();
    watch = Stopwatch();
    return found;
  };

  const auto step = [&](const auto& batch) {
    return trainer.step([&] {
      return torch::nn::functional::cross_entropy(scores_of(batch),
                                                  trainer.to_device(batch.second));
    });
  };
  lockstep::train_epochs(trainer, loader, options.run.training(), step, end_of_epoch);
  const double last_accuracy = test()["accuracy"];
  lockstep::load_best(trainer, options.run.run);
  const auto best = test();
  ResultFile result(runtime, options.run.run + "/result.json");
  result.add("test accuracy", last_accuracy);
  result.add("best test accuracy", best["accuracy"]);
  result.add("test loss of the best", best["loss"]);
  result.add("seconds of the last epoch", seconds);
  result.add("updates", static_cast<double>(trainer.updates()));
  result.add("skipped updates", static_cast<double>(trainer.scaler_state().skipped));
  result.add("peak memory of a rank, MiB", peak_memory_mib(runtime));
  result.write();
  LOCKSTEP_CHECK(best["accuracy"] >= options.min_accuracy, "the test accuracy is ",
                 best["accuracy"], ", expected at least ", options.min_accuracy);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a ResNet on CIFAR.");
  add_options(app, options);
  if (const auto code = parse(app, argc, argv)) {
    return *code;
  }
  return lockstep::run(argc, argv, [&](lockstep::Runtime& runtime) { train(runtime, options); });
}
