// Results and guards that must not be dropped. Each line marked `dropped` gives one warning of
// -Wunused-result, and no other line does: tests/build/dropped.py compiles this file and counts.
#include <lockstep/lockstep.h>
#include <torch/nn/modules/container/sequential.h>

struct Samples {
  size_t size() const;
  at::Tensor get(size_t index) const;
};

void drop(lockstep::Trainer& trainer, lockstep::DataParallel& parallel,
          lockstep::EarlyStopping& stopping, const lockstep::Communicator& ranks,
          lockstep::Loader<Samples>& loader, torch::nn::Sequential& model,
          const lockstep::Runtime& runtime, const at::Tensor& x) {
  ranks.all_reduce(x);            // dropped
  ranks.reduce_scatter(x, x);     // dropped
  ranks.all_gather(x, x);         // dropped
  ranks.broadcast(x);             // dropped
  ranks.barrier();                // dropped
  ranks.split(0);                 // dropped
  ranks.allocate(1, at::kFloat);  // dropped
  ranks.all_gather_bytes("");     // dropped
  ranks.all_reduce(x).wait();
  const lockstep::Work kept = ranks.barrier();

  parallel.no_sync();                      // dropped
  trainer.autocast();                      // dropped
  stopping.update(0.5);                    // dropped
  lockstep::find_batch_size(trainer, {});  // dropped
  lockstep::find_learning_rate(trainer, loader,
                               [&](auto&) { return trainer.step([&] { return x; }); });  // dropped
  lockstep::checkpoint(model, x);                                                        // dropped
  lockstep::checkpoint_sequential(model, 2, x);                                          // dropped

  lockstep::amp::Autocast(at::kCPU, at::kBFloat16);  // dropped
  lockstep::amp::NonFiniteTracer{model};             // dropped
  lockstep::EvalMode{model};                         // dropped
  lockstep::AveragedWeights(trainer, model);         // dropped
  lockstep::SampleRandom{7};                         // dropped
  lockstep::OffloadActivations{model};               // dropped
  lockstep::FlopCounter{};                           // dropped
  lockstep::StepTrace{runtime};                      // dropped

  trainer.step([&] { return x; });  // its report may be dropped, as may those of saves and loads
  trainer.update();
  trainer.save();
  trainer.resume();
  lockstep::load_weights(model, "weights.safetensors");
  lockstep::evaluate(trainer, model, loader, lockstep::Accuracy());
}
