// Trainer on real images: a small ResNet learns Fashion-MNIST in four epochs.
//
//   lockstep run -n 2 -- build/examples/03_fashion_mnist [--epochs 4] [--precision O0|O1|O2] ...
//
// With --snapshots DIR it saves there and, started again, goes on from the newest snapshot; stopped
// by Ctrl-C or Slurm it saves, too, and ends with exit code 75. Expected at the end: a table with
// the test accuracy, 0.91, and the path of the same numbers as JSON. O0 sends gradients in fp16.
#include <lockstep/lockstep.h>

#include "command_line.h"
#include "fashion_mnist_data.h"
#include "fashion_mnist_options.h"
#include "result_file.h"
#include "small_resnet.h"

void train(lockstep::Runtime& runtime, const Options& options) {
  const auto [images, test_images] = fashion_mnist(options.data, options.synthetic);
  const int64_t batch_size = std::max<int64_t>(1, options.batch_size / runtime.size());
  auto loader_options = lockstep::LoaderOptions().batch_size(batch_size).epochs(options.epochs);
  auto loader = runtime.loader(images, loader_options.shuffle(true).drop_last(true));
  const int64_t steps = loader.batches_per_epoch() * options.epochs;
  torch::nn::Sequential model = small_resnet(/*classes=*/10);
  const auto adamw = lockstep::AdamW(5e-3).weight_decay(0.05).no_decay_on_norms_and_biases();
  auto settings = lockstep::TrainerOptions().precision(precision_of(options));
  lockstep::Trainer trainer(runtime, model, adamw, settings.schedule(lockstep::OneCycle(steps)));
  std::cout << runtime.summary() << trainer.summary() << std::flush;
  const bool saves = !options.snapshots.empty();
  if (saves) {
    trainer.stop_on_signals();
    const lockstep::ResumeReport found = trainer.resume(options.snapshots);
    if (found.resumed && runtime.is_main()) {
      std::cout << "resumed at update " << found.update << " from " << found.path << std::endl;
    }
  }

  const Stopwatch watch;
  auto progress = std::make_optional<lockstep::Progress>("train", steps, runtime.is_main());
  for (auto& batch : loader) {
    const auto report = trainer.step([&] {
      const auto [pixels, labels] = trainer.to_device(batch);
      return torch::nn::functional::cross_entropy(model->forward(pixels), labels);
    });
    progress->show(report.micro_batch(), [&] {
      return lockstep::Progress::Values{{"loss", report.mean_loss()}, {"scale", report.scale()}};
    });
    if (trainer.stop_requested()) {
      trainer.save_and_leave();
    }
    if (saves && report.micro_batch() % 200 == 0) {
      trainer.save();
    }
  }
  progress.reset();
  if (saves) {
    trainer.save();
  }
  ResultFile result(runtime, options.out);
  result.add_training(trainer, watch.seconds(), loader.wait_seconds());
  const auto tests =
      runtime.validation_loader(test_images, lockstep::LoaderOptions().batch_size(500));
  const auto found = lockstep::evaluate(trainer, model, tests, lockstep::Accuracy());
  result.add("test accuracy", found["accuracy"]);
  result.write();
  LOCKSTEP_CHECK(found["accuracy"] >= options.min_accuracy, "the test accuracy is ",
                 found["accuracy"], ", expected at least ", options.min_accuracy);
}

int main(int argc, char** argv) {
  return run_with_options<Options>("Trains a small ResNet on Fashion-MNIST.", argc, argv, train);
}
