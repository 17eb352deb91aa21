#pragma once

#include <c10/core/Device.h>
#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/device/device_world.h>
#include <lockstep/runtime/data/loader.h>
#include <lockstep/runtime/data/rank_comparison.h>
#include <lockstep/runtime/device_choice.h>
#include <torch/arg.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct RuntimeOptions {
  /// The one seed of the run. Every rank's generators start from it, so models are built alike;
  /// seed_ranks() then gives each rank a stream of its own.
  TORCH_ARG(uint64_t, seed) = 0;
  /// How long a collective may wait for its peers before CommunicationError.
  TORCH_ARG(std::chrono::milliseconds, timeout) = std::chrono::minutes(10);
  /// Compare on every collective what the ranks called.
  TORCH_ARG(bool, check_collectives) = true;
  /// Compute threads of this rank. 0: OMP_NUM_THREADS if set, else cores of this node / ranks on
  /// it.
  TORCH_ARG(int, threads) = 0;
  /// What the ranks compute on. CUDA devices are bound by local rank.
  TORCH_ARG(DeviceKind, device) = DeviceKind::cpu;
  /// Ranks may have the same CUDA device.
  TORCH_ARG(bool, share_device) = false;
  /// What carries CUDA tensors.
  TORCH_ARG(DeviceTransport, transport) = DeviceTransport::automatic;
  /// fp32 products and convolutions of CUDA devices may use TF32 (10 bits of mantissa).
  TORCH_ARG(bool, tf32) = false;
  /// cuDNN tries its algorithms and keeps the fastest: for inputs of few different shapes.
  TORCH_ARG(bool, cudnn_benchmark) = false;
  /// Only operators that give the same bits each time; others throw. On a CUDA device this sets
  /// CUBLAS_WORKSPACE_CONFIG=:4096:8, which cuBLAS wants, unless the environment has it.
  TORCH_ARG(bool, deterministic) = false;
};

/// Who am I: rank, device, seeds, threads, and the communicator of all ranks.
///
/// Works under mpirun (Open MPI 4 and 5), MPICH-style launchers and srun; without a launcher the
/// world has size 1 and MPI is not used. Refuses (Error, exit code environment, on every rank)
/// when the launcher's rank count disagrees with MPI's. Binds the device before any CUDA call:
/// the only visible device, or the one numbered local_rank (Error, exit code environment, on every
/// rank where that cannot be, or where ranks share a device unasked).
/// Ranks: constructed first thing in main by every rank, once; the destructor waits for all ranks
/// unless an exception is in flight. Threads: use from the main thread.
/// Environment: overrides options, see runtime/environment.h.
class Runtime {
 public:
  Runtime(int argc, char** argv, RuntimeOptions options = {});
  ~Runtime();
  /// A world of this process alone, made beside other Runtimes or without one, for references and
  /// tests: no MPI, no environment variables. Starts this rank's generators from the seed.
  static Runtime solo(RuntimeOptions options = {});
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  int rank() const { return world_.rank(); }
  int size() const { return world_.size(); }
  int local_rank() const { return world_.local_rank(); }
  int local_size() const { return world_.local_size(); }
  /// True on rank 0, the one that prints.
  bool is_main() const { return rank() == 0; }
  c10::Device device() const { return device_; }
  int threads() const { return threads_; }
  uint64_t seed() const { return options_.seed(); }
  const std::string& program() const { return program_; }

  /// All ranks, for gradients.
  const Communicator& communicator() const { return world_; }
  /// All ranks again, for small host messages; its order is independent of communicator()'s.
  const Communicator& control() const { return control_; }

  /// Gives this rank's generators a stream of its own, of (seed, rank). Trainer calls it once the
  /// model is equal on all ranks, so dropout differs between ranks; DataParallel does as much. A
  /// loop with neither calls it itself after the model is made, else all ranks draw the same.
  /// `update` other than 0: another stream, for ranks that begin in the middle of a run.
  void seed_ranks(int64_t update = 0) const;

  /// This rank's share of `dataset`, in batches: a torch::data dataset or anything with `size()`
  /// and `get(index)`. The dataset is one and the same on every rank, and is dealt out to the
  /// ranks. Snapshots hold where it is. Every rank calls it, with the same options; where there are
  /// several, they compare size, first and last sample, for which each calls get(). Throws Error
  /// (exit code data) on every rank where these differ (unless LoaderOptions::compare_ranks is
  /// false): local_loader() is what to call.
  template <typename Dataset>
  Loader<Dataset> loader(Dataset dataset, LoaderOptions options = {}) const {
    if (options.compare_ranks() && size() > 1) {
      detail::require_same_data(control(), detail::dataset_size(dataset), [&](size_t index) {
        return detail::sample_numbers(dataset, index, SampleSeeds{seed(), 0});
      });
    }
    return Loader<Dataset>(std::move(dataset), rank(), size(), seed(), std::move(options),
                           loaders_.get());
  }

  /// The same for samples that each rank has of its own, as in an MPI program that computes them:
  /// this rank takes all of `dataset` once an epoch, in an order of its own. Sizes may differ.
  /// Every rank gets the same number of batches, as many as the rank with the most samples needs; a
  /// rank that would need fewer spreads its samples over as many, so its batches are smaller and
  /// nothing is left out or used twice. A mean loss then counts samples of smaller batches for
  /// more; Loss::sum counts all alike.
  /// Snapshots hold where it is; each rank resumes with the number of samples that it had. With
  /// another number of ranks or batch size, the epoch that was cut begins again, and ResumeReport
  /// says so.
  /// Every rank calls it, with the same options. Throws Error (exit code data) on every rank where
  /// a rank has fewer samples than there are batches, or would leave out whole batches with
  /// drop_last.
  template <typename Dataset>
  Loader<Dataset> local_loader(Dataset dataset, LoaderOptions options = {}) const {
    auto sizes =
        detail::of_each_rank(control(), static_cast<int64_t>(detail::dataset_size(dataset)));
    return Loader<Dataset>(std::move(dataset), std::move(sizes), rank(), seed(), std::move(options),
                           loaders_.get());
  }

  /// Where this rank's loaders are.
  LoaderPlaces& loaders() const { return *loaders_; }

  /// Notes the digest of an array that all ranks must hold alike when the program ends: what a
  /// Trainer leaves. run() compares, when all ranks have come to the end.
  void hold_at_end(const std::string& name, uint64_t digest) const;

  /// One screen: ranks, nodes, device, threads, transport, versions. Empty but on rank 0.
  std::string summary() const;

 private:
  struct Session;
  Runtime(std::string program, std::unique_ptr<Session> session);
  RuntimeOptions options_;
  std::string program_;
  std::unique_ptr<Session> session_;
  Communicator world_;
  Communicator control_;
  c10::Device device_;
  int threads_ = 1;
  std::shared_ptr<LoaderPlaces> loaders_ = std::make_shared<LoaderPlaces>();

  friend int run(int argc, char** argv, const std::function<void(Runtime&)>& body);
  struct Ends {
    std::vector<std::string> names;
    std::vector<uint64_t> digests;
  };
  std::shared_ptr<Ends> ends_ = std::make_shared<Ends>();
};

/// Runs `body(runtime)` and returns the exit code of its outcome: 0, the code of a lockstep::Error,
/// out_of_memory or peer_lost where another exception says that memory or the device failed, or 1
/// for the rest; its text is printed once with the rank, a LibTorch error's without its backtrace
/// (LOCKSTEP_BACKTRACE=1 brings that back). For main functions:
/// `int main(int c, char** v) { return lockstep::run(c, v, [](lockstep::Runtime& runtime) {...});
/// }` A rank that fails leaves without waiting for the others; the launcher ends them. Where no
/// rank failed, but the last Trainers left different weights or moments on some, all of them return
/// diverged.
int run(int argc, char** argv, const std::function<void(Runtime&)>& body);

}  // namespace lockstep
