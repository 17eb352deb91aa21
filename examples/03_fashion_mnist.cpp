// Trainer on real images: a small ResNet learns Fashion-MNIST in four epochs.
//
//   lockstep run -n 2 -- build/examples/03_fashion_mnist [--epochs 4] [--precision O0|O1|O2] ...
//
// With --snapshots DIR it saves there and, started again, goes on from the newest snapshot; stopped
// by Ctrl-C, Slurm or --seconds it saves, too, and ends with exit code 75.
//
// Expected with the defaults: a progress bar, then a table such as
//   result           value
//   ---------------  ------
//   test accuracy    0.9117
//   ...
// and the path of the same numbers as JSON. Precision O0 sends gradients in fp16, so the dynamic
// loss scale is at work; O1 and O2 compute in fp16 too, which CPUs do slowly: convolutions take
// tens of times as long, even with AVX512-FP16.

#include <lockstep/lockstep.h>

#include <iostream>

#include "command_line.h"
#include "fashion_mnist_data.h"
#include "fashion_mnist_options.h"
#include "result_file.h"
#include "small_resnet.h"

namespace {

lockstep::Precision precision_of(const std::string& name) {
  return name == "O2"   ? lockstep::Precision::O2()
         : name == "O1" ? lockstep::Precision::O1()
                        : lockstep::Precision::O0().wire(torch::kHalf);
}

torch::Tensor loss_of(torch::nn::Sequential& model,
                      const std::pair<torch::Tensor, torch::Tensor>& batch) {
  return torch::nn::functional::cross_entropy(model->forward(normalized(batch.first)),
                                              batch.second);
}

/// Share of the test images that are classified rightly; each rank looks at its part of them.
double test_accuracy(lockstep::Runtime& runtime, torch::nn::Sequential& model,
                     const lockstep::LabelledImages& images, const lockstep::Precision& precision) {
  const torch::NoGradGuard no_grad;
  const lockstep::amp::Autocast autocast(runtime.device().type(), precision.compute_dtype(),
                                         precision.autocast());
  model->eval();
  torch::Tensor right = torch::zeros({1}, torch::kDouble);
  for (auto& batch : runtime.loader(images, lockstep::LoaderOptions().batch_size(500))) {
    const auto [pixels, labels] = lockstep::moved(batch, runtime.device());
    right += model->forward(normalized(pixels)).argmax(1).eq(labels).sum().cpu();
  }
  lockstep::Communicator(runtime.control()).all_reduce(right).wait();
  return right.item<double>() / static_cast<double>(images.size());
}

void train(lockstep::Runtime& runtime, const Options& options) {
  const auto [images, test_images] = fashion_mnist(options.data, options.synthetic);
  const int64_t batch_size = std::max<int64_t>(1, options.batch_size / runtime.size());
  auto loader = runtime.loader(images, lockstep::LoaderOptions()
                                           .batch_size(batch_size)
                                           .shuffle(true)
                                           .drop_last(true)
                                           .epochs(options.epochs));
  const int64_t steps = loader.batches_per_epoch() * options.epochs;

  const lockstep::Precision precision = precision_of(options.precision);
  torch::nn::Sequential model = small_resnet(/*classes=*/10);
  lockstep::Trainer trainer(
      runtime, model, lockstep::AdamW(5e-3).weight_decay(0.05).no_decay_on_norms_and_biases(),
      lockstep::TrainerOptions().precision(precision).schedule(lockstep::OneCycle(steps)));
  std::cout << runtime.summary() << trainer.summary() << std::flush;

  const bool saves = !options.snapshots.empty();
  if (saves) {
    const lockstep::ResumeReport found = trainer.resume(options.snapshots);
    if (found.resumed && runtime.is_main()) {
      std::cout << "resumed at update " << found.update << " from " << found.path << std::endl;
    }
    trainer.stop_on_signals();
  }

  const Stopwatch watch;
  int64_t step = 0;
  {
    lockstep::Progress progress("train", steps, runtime.is_main());
    for (auto& batch : loader) {
      const lockstep::StepReport report =
          trainer.step([&] { return loss_of(model, trainer.to_device(batch)); });
      ++step;
      progress.show(report.micro_batch(), [&] {
        return lockstep::Progress::Values{{"loss", report.mean_loss()}, {"scale", report.scale()}};
      });
      if (watch.seconds() > options.seconds) {
        trainer.request_stop();
      }
      if (saves && report.micro_batch() % 200 == 0) {
        trainer.save();
      }
      if (trainer.stop_requested()) {
        if (saves) {
          trainer.save_and_leave();
        }
        break;
      }
    }
  }
  if (saves) {
    trainer.save();
  }
  const double seconds = watch.seconds();
  const double accuracy = test_accuracy(runtime, model, test_images, precision);
  ResultFile result(runtime, options.out);
  result.add("test accuracy", accuracy);
  result.add("images/s", static_cast<double>(step * batch_size * runtime.size()) / seconds);
  result.add("training seconds", seconds);
  result.add("updates", static_cast<double>(trainer.updates()));
  result.add("skipped updates", static_cast<double>(trainer.scaler_state().skipped));
  result.add("loss scale", trainer.loss_scale());
  result.add("waited for data, s", loader.wait_seconds());
  result.add("peak memory of a rank, MiB", peak_memory_mib(runtime));
  result.add("ranks", runtime.size());
  result.write();
  LOCKSTEP_CHECK(accuracy >= options.min_accuracy, "the test accuracy is ", accuracy,
                 ", expected at least ", options.min_accuracy);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a small ResNet on Fashion-MNIST.");
  add_options(app, options);
  if (const auto code = parse(app, argc, argv)) {
    return *code;
  }
  return lockstep::run(argc, argv, [&](lockstep::Runtime& runtime) { train(runtime, options); });
}
