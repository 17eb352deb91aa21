#include "doctor/training_checks.h"

#include <ATen/CPUGeneratorImpl.h>
#include <lockstep/amp/impl/cuda_kernels.h>
#include <lockstep/amp/optimizers.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/closure_calls.h>
#include <lockstep/collectives/impl/device_world.h>
#include <lockstep/runtime/data_parallel.h>
#include <lockstep/runtime/process/impl/identity.h>
#include <lockstep/runtime/trainer.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <optional>
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

TrainerOptions options_with(const Precision& precision) {
  return TrainerOptions().precision(precision).clip_grad_norm(1.0);
}

/// A net with its Trainer: AdamW with an fp16 wire, unless told otherwise.
struct Training {
  explicit Training(Runtime& of, bool captured = false)
      : Training(of, AdamW(1e-2),
                 options_with(Precision::O0().wire(at::kHalf)).cuda_graph(captured)) {}
  Training(Runtime& of, const OptimizerSpec& optimizer, const TrainerOptions& options)
      : runtime(of), trainer(of, net, optimizer, options) {}

  StepReport step(int number) { return step(number, runtime.rank()); }
  StepReport step(int number, int rank) {
    return trainer.step(
        batch_of(rank, number, runtime.device()),
        [this](const std::vector<at::Tensor>& batch) -> Loss { return loss_of(net, batch); });
  }
  void train() {
    for (int k = 0; k < kSteps; ++k) {
      step(k);
    }
  }
  std::string digest() const { return digest_of(net->parameters()); }
  at::Tensor weights() const {
    std::vector<at::Tensor> flat;
    for (const at::Tensor& weight : net->parameters()) {
      flat.push_back(weight.detach().cpu().view(-1).to(at::kDouble));
    }
    return at::cat(flat);
  }

  Runtime& runtime;
  torch::nn::Sequential net = small_net();
  Trainer trainer;
};

/// What is read of each step. The clip factor is that of the step that the weights made.
constexpr std::array<const char*, 7> kReadings{
    "loss", "mean loss", "gradient norm", "clip factor", "loss scale", "skips", "update"};
using Readings = std::array<double, kReadings.size()>;

/// A way to train whose steps are compared with the host's. The tolerance is relative.
struct Recipe {
  const char* name;
  std::shared_ptr<const OptimizerSpec> optimizer;
  TrainerOptions options;
  double tolerance;
  double learning_rate;  // of plain SGD; 0: the clip factor cannot be read from the weights
};

/// The fp32 wire rounds no gradient, so that steps of several ranks agree with those of one. Plain
/// SGD does not hide a gradient's length, as AdamW does. The loss scale grows once in 8 updates.
std::vector<Recipe> recipes(int ranks) {
  const auto growing = amp::LossScalerOptions().init_scale(16.0).growth_interval(8);
  return {{"SGD, fp32 wire", std::make_shared<SGD>(0.1), options_with(Precision::O0()), 1e-4, 0.1},
          {"AdamW, fp16 wire", std::make_shared<AdamW>(1e-2),
           options_with(Precision::O0().wire(at::kHalf).loss_scale(growing)),
           ranks == 1 ? 1e-3 : 2e-2, 0.0}};
}

/// 40 steps on the batches of `ranks`, one after the other; the report is that of `own`'s batch.
std::vector<Readings> readings_of(Training& training, const Recipe& recipe,
                                  const std::vector<int>& ranks, int own) {
  std::vector<Readings> all;
  for (int k = 0; k < kSteps; ++k) {
    const at::Tensor before = training.weights();
    double loss = 0.0;
    std::optional<StepReport> report;
    for (const int rank : ranks) {
      report = training.step(k, rank);
      loss = rank == own ? report->loss() : loss;
    }
    const double norm = report->grad_norm();
    const double moved = (training.weights() - before).norm().item<double>();
    const double clip = recipe.learning_rate > 0.0 ? moved / (recipe.learning_rate * norm) : 1.0;
    all.push_back({loss, report->mean_loss(), norm, clip, report->scale(),
                   report->skipped() ? 1.0 : 0.0, static_cast<double>(report->update())});
  }
  return all;
}

/// The same steps on the host of this rank alone, which takes the batches of all ranks.
std::vector<Readings> readings_of_host(const Runtime& runtime, const Recipe& recipe) {
  Runtime host = Runtime::solo(
      RuntimeOptions().seed(runtime.seed()).device(DeviceKind::cpu).threads(runtime.threads()));
  std::vector<int> ranks(static_cast<size_t>(runtime.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  Training training(host, *recipe.optimizer,
                    TrainerOptions(recipe.options).accumulate(runtime.size()));
  return readings_of(training, recipe, ranks, runtime.rank());
}

/// The first reading that is not the host's; empty: none.
std::string first_difference(const std::vector<Readings>& mine, const std::vector<Readings>& host,
                             const Recipe& recipe) {
  for (size_t k = 0; k < host.size(); ++k) {
    for (size_t each = 0; each < kReadings.size(); ++each) {
      const double a = mine[k][each], b = host[k][each];
      const bool equal =
          std::isnan(b) ? std::isnan(a) : std::abs(a - b) <= recipe.tolerance * std::abs(b);
      if (!equal) {
        return c10::str(recipe.name, ", step ", k + 1, ": the ", kReadings[each], " is ", a,
                        ", on the host ", b);
      }
    }
  }
  return "";
}

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
  constexpr const char* kLookAbove =
      "look at the rows above for wrong sums, kernels and instruction sets; then report it with "
      "the file of --json";
  std::string agreed;
  for (const Recipe& recipe : recipes(runtime.size())) {
    Training training(runtime, *recipe.optimizer, recipe.options);
    const auto mine = readings_of(training, recipe, {runtime.rank()}, runtime.rank());
    if (fault.weights) {
      const at::NoGradGuard no_grad;
      fault.weights(training.net->parameters());
    }
    const auto differing = ranks_that_differ(runtime.control(), training.digest());
    if (!differing.empty()) {
      return {Status::failure,
              c10::str(recipe.name, ": after ", kSteps, " steps ", names_of(differing),
                       " has other weights than rank 0"),
              kLookAbove};
    }
    const std::string difference =
        first_difference(mine, readings_of_host(runtime, recipe), recipe);
    if (!on_all(runtime, difference.empty())) {
      return {Status::failure,
              difference.empty()
                  ? c10::str(recipe.name, ": another rank's steps are not the host's")
                  : difference,
              kLookAbove};
    }
    agreed += c10::str(agreed.empty() ? "" : "; ", recipe.name, " within ", recipe.tolerance);
  }
  return {Status::ok,
          c10::str(kSteps, " steps: equal weights; losses, norms, decisions of the host: ", agreed),
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

namespace {

/// What every rank throws for an exception of the last rank in a step, and whether a step follows.
/// `before_loss`: called in the closure of each rank that does not throw.
Finding after_exception(Runtime& runtime, bool throws, const std::function<void()>& before_loss) {
  Training training(runtime);
  training.step(0).loss();
  const bool here = runtime.rank() == runtime.size() - 1 && throws;
  std::string text;
  try {
    training.trainer.step(batch_of(runtime.rank(), 1, runtime.device()),
                          [&](const std::vector<at::Tensor>& batch) -> Loss {
                            if (here) {
                              throw std::runtime_error(kPlanted);
                            }
                            before_loss();
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

}  // namespace

Finding check_exception(Runtime& runtime, const TrainingFault& fault) {
  return after_exception(runtime, !fault.no_exception, [] {});
}

Finding check_waiting_peers(Runtime& runtime, const TrainingFault& fault) {
  const auto calls = detail::closure_calls(runtime.communicator());
  if (!calls || !calls->can_meet()) {
    return {Status::skipped,
            runtime.size() == 1 ? "one rank waits for nobody"
                                : "what waits in device memory ends with the run",
            ""};
  }
  const Communicator ranks = runtime.communicator().split(0);
  runtime.control().barrier().wait();
  Finding finding = after_exception(runtime, !fault.no_exception, [&] { ranks.barrier().wait(); });
  runtime.control().barrier().wait();
  if (finding.status == Status::ok) {
    finding.what = c10::str("an exception on rank ", runtime.size() - 1,
                            " reached the others, which waited in a collective");
  }
  return finding;
}

}  // namespace lockstep::doctor
