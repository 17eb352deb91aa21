#include "doctor/training_checks.h"

#include <ATen/CPUGeneratorImpl.h>
#include <lockstep/amp/impl/cuda_kernels.h>
#include <lockstep/amp/optimizers.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/device_world.h>
#include <lockstep/runtime/data_parallel.h>
#include <lockstep/runtime/process/impl/identity.h>
#include <lockstep/runtime/trainer.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <memory>
#include <stdexcept>

#include "doctor/rank_findings.h"

namespace lockstep::doctor {
namespace {

constexpr int kSteps = 40;
constexpr const char* kPlanted = "planted by lockstep doctor";

torch::nn::Sequential small_net() {
  at::manual_seed(7);
  return torch::nn::Sequential(torch::nn::Linear(32, 64), torch::nn::ReLU(),
                               torch::nn::Linear(64, 8));
}

/// A batch of this rank, the same at each call, on `device`.
std::vector<at::Tensor> batch_of(int rank, int step, c10::Device device) {
  const auto seed = static_cast<uint64_t>(1000 * (step % 4) + rank + 1);
  const at::Tensor inputs = at::randn({16, 32}, at::detail::createCPUGenerator(seed));
  const at::Tensor targets = inputs.narrow(1, 0, 8).argmax(1);
  return {inputs.to(device), targets.to(device)};
}

at::Tensor loss_of(torch::nn::Sequential& net, const std::vector<at::Tensor>& batch) {
  return torch::nn::functional::cross_entropy(net->forward(batch[0]), batch[1]);
}

/// A net with its Trainer.
struct Training {
  explicit Training(Runtime& of, bool captured = false)
      : runtime(of),
        trainer(of, net, AdamW(1e-2),
                TrainerOptions()
                    .precision(Precision::O0().wire(at::kHalf))
                    .clip_grad_norm(1.0)
                    .cuda_graph(captured)) {}

  StepReport step(int number) {
    return trainer.step(
        batch_of(runtime.rank(), number, runtime.device()),
        [this](const std::vector<at::Tensor>& batch) -> Loss { return loss_of(net, batch); });
  }
  void train() {
    for (int k = 0; k < kSteps; ++k) {
      const StepReport report = step(k);
      if (k == 0) {
        first_loss = report.loss();
      } else if (k == kSteps - 1) {
        last_loss = report.loss();
      }
    }
  }
  std::string digest() const { return digest_of(net->parameters()); }

  Runtime& runtime;
  torch::nn::Sequential net = small_net();
  Trainer trainer;
  double first_loss = 0.0;
  double last_loss = 0.0;
};

/// True on every rank if `mine` is true on all.
bool on_all(const Runtime& runtime, bool mine) {
  for (const std::string& text : runtime.control().all_gather_bytes(mine ? "1" : "0")) {
    if (text != "1") {
      return false;
    }
  }
  return true;
}

const char* const kReport = "do not train with this build: report it with the file of --json";

/// 40 steps of DataParallel and torch::optim on `world`: the weights.
std::vector<at::Tensor> weights_by(const Communicator& world, c10::Device device) {
  torch::nn::Sequential net = small_net();
  net->to(device);
  DataParallel parallel(world, net);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  for (int k = 0; k < kSteps; ++k) {
    optimizer.zero_grad();
    loss_of(net, batch_of(world.rank(), k, device)).backward();
    parallel.finish();
    optimizer.step();
  }
  return net->parameters();
}

}  // namespace

Finding check_equal_weights(Runtime& runtime, const TrainingFault& fault) {
  Training training(runtime);
  training.train();
  if (fault.weights) {
    const at::NoGradGuard no_grad;
    fault.weights(training.net->parameters());
  }
  const auto differing = ranks_that_differ(runtime.control(), training.digest());
  if (!differing.empty()) {
    return {Status::failure,
            c10::str("after ", kSteps, " steps ", names_of(differing),
                     " has other weights than rank 0"),
            "look at the rows above for wrong sums, kernels and instruction sets; then report it "
            "with the file of --json"};
  }
  if (!on_all(runtime, training.last_loss < training.first_loss)) {
    return {Status::failure,
            c10::str("the loss went from ", training.first_loss, " to ", training.last_loss),
            kReport};
  }
  return {Status::ok,
          c10::str(kSteps, " steps of AdamW, fp16 wire: equal weights, loss ",
                   std::round(training.first_loss * 1e3) * 1e-3, " to ",
                   std::round(training.last_loss * 1e3) * 1e-3),
          ""};
}

Finding check_captured_steps(Runtime& runtime) {
  if (!runtime.device().is_cuda()) {
    return {Status::skipped, "needs a device", ""};
  }
  if (!amp::cuda_kernels_available() ||
      (runtime.size() > 1 && runtime.communicator().transport_name() == "staged")) {
    return {Status::skipped, "needs lockstep's kernels, and NCCL between several ranks", ""};
  }
  Training direct(runtime);
  direct.train();
  Training captured(runtime, /*captured=*/true);
  captured.train();
  if (!on_all(runtime, direct.digest() == captured.digest())) {
    return {Status::failure, "captured steps end with other weights than steps without capture",
            "do not use TrainerOptions::cuda_graph here; report it with the file of --json"};
  }
  return {Status::ok, c10::str(kSteps, " captured steps have the bits of direct ones"), ""};
}

Finding check_transports(Runtime& runtime) {
  const Communicator& world = runtime.communicator();
  if (runtime.size() == 1 || !runtime.device().is_cuda() || world.transport_name() == "staged") {
    return {Status::skipped, "needs several ranks over NCCL", ""};
  }
  const DeviceWorld staged = make_device_world(
      runtime.control().split(0, runtime.rank()), runtime.device(),
      detail::device_identity(runtime.device().index()), DeviceTransport::staged, {}, [] {});
  const auto over_nccl = weights_by(world, runtime.device());
  const auto over_host = weights_by(staged.communicator, runtime.device());
  const bool equal = on_all(runtime, digest_of(over_nccl) == digest_of(over_host));
  bool close = true;
  for (size_t k = 0; k < over_nccl.size(); ++k) {
    close = close && at::allclose(over_nccl[k], over_host[k], 1e-3, 1e-4);
  }
  // Two ranks have only one order of additions; with more, NCCL's order differs.
  if (!on_all(runtime, close) || (runtime.size() == 2 && !equal)) {
    return {Status::failure, "NCCL ends with other weights than the staged transport",
            "use LOCKSTEP_TRANSPORT=staged until the cause is found: NCCL_DEBUG=INFO, "
            "NCCL_P2P_DISABLE=1, NCCL_ALGO=Ring"};
  }
  return {Status::ok,
          equal ? "NCCL and staged: equal bits" : "NCCL and staged: equal within rounding", ""};
}

Finding check_overflow(Runtime& runtime, const TrainingFault& fault) {
  Training training(runtime);
  training.step(0).loss();
  const std::string before = training.digest();
  const bool here = runtime.rank() == runtime.size() - 1 && !fault.no_inf;
  const StepReport report =
      training.trainer.step(batch_of(runtime.rank(), 1, runtime.device()),
                            [&](const std::vector<at::Tensor>& batch) -> Loss {
                              const at::Tensor loss = loss_of(training.net, batch);
                              return here ? loss * INFINITY : loss;
                            });
  const bool skipped = report.skipped();
  const bool kept = training.digest() == before;
  const bool goes_on = !training.step(2).skipped();
  if (!on_all(runtime, skipped && kept)) {
    return {Status::failure, "an inf on one rank did not make every rank skip the update", kReport};
  }
  if (!on_all(runtime, goes_on)) {
    return {Status::failure, "the update after a skipped one was skipped too", kReport};
  }
  return {Status::ok,
          c10::str("an inf on rank ", runtime.size() - 1, ": every rank skipped, no weight moved"),
          ""};
}

Finding check_exception(Runtime& runtime, const TrainingFault& fault) {
  Training training(runtime);
  training.step(0).loss();
  const bool here = runtime.rank() == runtime.size() - 1 && !fault.no_exception;
  std::string text;
  try {
    training.trainer.step(batch_of(runtime.rank(), 1, runtime.device()),
                          [&](const std::vector<at::Tensor>& batch) -> Loss {
                            if (here) {
                              throw std::runtime_error(kPlanted);
                            }
                            return loss_of(training.net, batch);
                          });
    training.trainer.abandon();  // with a device the other ranks get the error here
  } catch (const Error& error) {
    text = error.what();
  }
  const std::string rank = c10::str("rank ", runtime.size() - 1);
  const bool named = text.find(kPlanted) != std::string::npos &&
                     (runtime.size() == 1 || text.find(rank) != std::string::npos);
  if (!on_all(runtime, named)) {
    return {Status::failure, "an exception on one rank was not raised on every rank", kReport};
  }
  const double loss = training.step(2).loss();
  if (!on_all(runtime, std::isfinite(loss))) {
    return {Status::failure, "no step was possible after an exception", kReport};
  }
  return {Status::ok,
          c10::str("an exception on ", rank, " was raised on every rank, with its name"), ""};
}

}  // namespace lockstep::doctor
