// loading [SCALE]: how long a training loop waits for its data, with SCALE times the usual number
// of steps: ResNet-18 on augmented images of CIFAR's size. A step is forward, backward and update,
// without the wait for its batch.
#include <ATen/ATen.h>
#include <lockstep/amp/optimizers.h>
#include <lockstep/collectives/check.h>
#include <lockstep/inputs/image_transforms.h>
#include <lockstep/inputs/labelled_images.h>
#include <lockstep/inputs/transformed_dataset.h>
#include <lockstep/runtime/loader.h>
#include <lockstep/runtime/runtime.h>
#include <lockstep/runtime/trainer.h>

#include <algorithm>
#include <string>
#include <utility>

#include "models/resnet.h"
#include "recorder.h"

namespace lockstep::benchmarks {
namespace {

constexpr int64_t images = 2048;
constexpr int64_t batch_size = 32;
constexpr int warm_up = 2;
constexpr int usual_steps = 8;
constexpr int batches_alone = 100;

using Sample = std::pair<at::Tensor, int64_t>;
using Batch = std::pair<at::Tensor, at::Tensor>;

LabelledImages made_up_images() {
  return {at::randint(256, {images, 3, 32, 32}, at::kByte), at::arange(images) % 10};
}

Sample augmented(const Sample& sample) {
  const at::Tensor image = random_flip(random_crop(sample.first, 32, 32, /*padding=*/4));
  return {normalized(image, {0.491, 0.482, 0.447}, {0.247, 0.243, 0.262}), sample.second};
}

/// Calls `use` for each batch of one loop; records the waits for `batches` of them.
template <typename Use>
void record_waits(Runtime& runtime, int workers, int batches, Series waits, const Use& use) {
  auto loader = runtime.loader(
      transformed(made_up_images(), augmented),
      LoaderOptions().batch_size(batch_size).shuffle(true).epochs(1000).workers(workers));
  auto batch = loader.begin();
  for (int done = 0; done < warm_up + batches; ++done) {
    const bool counts = done >= warm_up;
    use(*batch, counts);
    if (!counts) {
      ++batch;
      continue;
    }
    waits.begin();
    ++batch;
    waits.end();
  }
  waits.write();
}

void measure(Runtime& runtime, double scale) {
  const int steps = std::max(1, static_cast<int>(usual_steps * scale));
  const int alone = std::max(1, static_cast<int>(batches_alone * scale));
  ResNet model{ResNetSize()};
  Trainer trainer(runtime, model, SGD(0.1).momentum(0.9));
  for (const int workers : {0, 1, 2}) {
    const std::string name = std::to_string(workers) + " workers";
    Series computes(name, "step");
    const auto step = [&](const Batch& on_host, bool counts) {
      if (counts) {
        computes.begin();
      }
      const Batch batch = trainer.to_device(on_host);
      const auto report = trainer.step(
          [&] { return at::cross_entropy_loss(model->forward(batch.first), batch.second); });
      LOCKSTEP_CHECK(report.loss() < 1e6, "the loss is ", report.loss());
      if (counts) {
        computes.end();
      }
    };
    record_waits(runtime, workers, steps, Series(name, "wait"), step);
    computes.write();
  }
  record_waits(runtime, 0, alone, Series("loading alone", "wait"), [](const Batch&, bool) {});
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  return lockstep::run(argc, argv, [&](lockstep::Runtime& runtime) {
    lockstep::benchmarks::measure(runtime, argc > 1 ? std::stod(argv[1]) : 1.0);
  });
}
