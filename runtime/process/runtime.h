#pragma once

#include <c10/core/Device.h>
#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/communicator_options.h>
#include <lockstep/collectives/mpi_comm_handle.h>
#include <lockstep/runtime/loader.h>
#include <lockstep/runtime/validation_loader.h>
#include <torch/arg.h>

#pragma push_macro("LOCKSTEP_OWN_LIBRARY")
#define LOCKSTEP_OWN_LIBRARY 1
#include <lockstep/runtime/data/impl/rank_comparison.h>
#pragma pop_macro("LOCKSTEP_OWN_LIBRARY")

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace lockstep {

/// Which kind of device the ranks compute on.
enum class DeviceKind {
  cpu,
  cuda,
  automatic,  // cuda; cpu where there is no GPU or none is wanted
};

struct RuntimeOptions {
  /// The seed of the run. Every rank's generators start from this seed, so that all ranks build the
  /// same model. seed_ranks() then gives each rank a different stream.
  TORCH_ARG(uint64_t, seed) = 0;
  /// How long a collective waits for its peers before it throws CommunicationError.
  TORCH_ARG(std::chrono::milliseconds, timeout) = std::chrono::minutes(10);
  /// True: every collective checks that all ranks made the same call.
  TORCH_ARG(bool, check_collectives) = true;
  /// Compute threads of this rank. 0: OMP_NUM_THREADS if set, else the cores of this node divided
  /// by its ranks; for a guest in a program with MPI, what the program has set.
  TORCH_ARG(int, threads) = 0;
  /// Kind of device that the ranks compute on. CUDA devices are bound by local rank. `automatic`:
  /// CUDA devices; the CPU on all ranks where no rank has a GPU, LibTorch is for CPUs, or a rank's
  /// CUDA_VISIBLE_DEVICES is empty. A GPU that cannot be used, or that one rank lacks, is an Error
  /// (environment). If a machine has a GPU, rank 0 prints one line on standard error that says what
  /// was chosen and why; summary() always says so.
  TORCH_ARG(DeviceKind, device) = DeviceKind::automatic;
  /// True: several ranks may use the same CUDA device.
  TORCH_ARG(bool, share_device) = false;
  /// Transport of CUDA tensors between ranks.
  TORCH_ARG(DeviceTransport, transport) = DeviceTransport::automatic;
  /// Which fp32 operators on CUDA devices may use TF32 (10 bits of mantissa). True: matrix products
  /// and convolutions. False: none. Unset: convolutions only, as in PyTorch.
  TORCH_ARG(std::optional<bool>, tf32) = std::nullopt;
  /// True: cuDNN tries its algorithms and keeps the fastest one. Useful if inputs have few
  /// different shapes. False: cuDNN chooses by rules, as in PyTorch.
  TORCH_ARG(bool, cudnn_benchmark) = false;
  /// True: only operators that give the same bits each time may run; others throw. On a CUDA device
  /// this also sets CUBLAS_WORKSPACE_CONFIG=:4096:8, which cuBLAS requires, unless the environment
  /// already sets it.
  TORCH_ARG(bool, deterministic) = false;
};

/// Gives a process its rank, device, seeds, threads and the communicator of all ranks.
///
/// Works under mpirun (Open MPI 4 and 5), MPICH-style launchers and srun. Without a launcher the
/// world has size 1 and MPI is not used. Throws Error (exit code environment) on every rank if the
/// launcher's rank count disagrees with MPI's.
/// The constructor binds the device before any CUDA call. If one device is visible, the rank uses
/// it, else the device with number local_rank. Throws Error (exit code environment) on every rank
/// if a rank has no such device, or if ranks share a device without share_device.
/// Ranks: every rank constructs one Runtime, once, first in main. The destructor waits for all
/// ranks unless an exception is in flight. Threads: use it from the main thread.
/// Environment variables override the options: LOCKSTEP_SEED, LOCKSTEP_TIMEOUT (seconds),
/// LOCKSTEP_CHECK (0 or 1: check_collectives), LOCKSTEP_DEVICE (cpu, cuda or automatic),
/// LOCKSTEP_SHARE_DEVICE (0 or 1), LOCKSTEP_TRANSPORT (automatic, nccl or staged).
class Runtime {
 public:
  Runtime(int argc, char** argv, RuntimeOptions options = {});
  /// A guest in a program that has initialised MPI: a world of the ranks of `comm`, an MPI_Comm of
  /// the program. Every rank of `comm` constructs it; other ranks of the program take no part. A
  /// program may have several, at once or one after another. The program calls MPI_Init_thread
  /// with at least MPI_THREAD_SERIALIZED, and MPI_Finalize after the last Runtime.
  /// A guest leaves the program as it found it: no error handler, signal handler or setting of
  /// malloc is changed. Threads stay as they are unless RuntimeOptions::threads is set. The
  /// destructor puts back LibTorch's number of threads, arithmetic settings and random number
  /// generators. Of several at a time, destroy the last made first.
  /// Two guests on different ranks of one node both count their devices from 0: give each rank its
  /// own CUDA_VISIBLE_DEVICES.
  explicit Runtime(MpiCommHandle comm, RuntimeOptions options = {});
  ~Runtime();
  /// Makes a world of this process alone, for references and tests. Other Runtimes may exist. Uses
  /// neither MPI nor environment variables, and prints nothing. Starts this rank's generators from
  /// the seed.
  static Runtime solo(RuntimeOptions options = {});
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  int rank() const { return world_.rank(); }
  int size() const { return world_.size(); }
  int local_rank() const { return world_.local_rank(); }
  int local_size() const { return world_.local_size(); }
  /// True on rank 0, the rank that prints.
  bool is_main() const { return rank() == 0; }
  c10::Device device() const { return device_; }
  int threads() const { return threads_; }
  /// True if RuntimeOptions::threads, OMP_NUM_THREADS or the program that this is a guest of named
  /// the number of threads. False: it follows from the cores and ranks of the node.
  bool threads_are_named() const { return threads_are_named_; }
  uint64_t seed() const { return options_.seed(); }
  const std::string& program() const { return program_; }

  /// All ranks, for gradients.
  const Communicator& communicator() const { return world_; }
  /// All ranks again, for small host messages. The order of its collectives is independent of the
  /// order on communicator().
  const Communicator& control() const { return control_; }

  /// Seeds this rank's generators from (seed, rank), so that dropout, for example, differs between
  /// ranks. Trainer calls it once the model is equal on all ranks. DataParallel does the
  /// equivalent. A training loop without either must call it after the model is made; otherwise all
  /// ranks draw the same numbers. `update` other than 0 selects another stream, for ranks that
  /// start in the middle of a run.
  void seed_ranks(int64_t update = 0) const;

  /// Makes a model without one whole copy per rank: `make` runs on one rank of a node at a time. It
  /// returns a module holder or a pointer to a module, and must not communicate with other ranks.
  ///   auto net = runtime.construct([&] { return Net(config); });
  /// On hosts the ranks of a node then have one copy of the parameters in shared memory, so that a
  /// node needs at most that and the private copy of one rank. A rank that writes a parameter gets
  /// a private copy of the pages it writes. A parameter stays private if its bits differ between
  /// the ranks, if another tensor has its memory, and if the node has no room for shared memory
  /// (rank 0 then prints one line). Buffers stay private. On devices a rank's model is moved to
  /// device() before the next rank begins. Values and random numbers are those of a plain make().
  /// Every rank must call it. If `make` throws on one rank, every rank throws the same Error. A
  /// rank waits for the one before it, at most RuntimeOptions::timeout.
  template <typename Make>
  auto construct(const Make& make) const {
    std::optional<decltype(make())> model;
    construct_in_turns([&]() -> torch::nn::Module& { return *model.emplace(make()); });
    return std::move(*model);
  }

  /// Returns this rank's share of `dataset`, in batches. `dataset` is a torch::data dataset, or any
  /// type with `size()` and `get(index)`. It must be the same dataset on every rank; its samples
  /// are divided among the ranks. Snapshots hold the position of the loader. Every rank must call
  /// it, with the same options. If there are several ranks, they compare the options that decide
  /// about batches, and size, first sample, last sample and LoaderOptions::weights; each rank calls
  /// get() for that. If options differ, throws Error (exit code usage) on every rank; if data
  /// differ, Error (exit code data). LoaderOptions::compare_ranks(false) on every rank switches
  /// both off; on some ranks only, it is such a difference. For different data on each rank, call
  /// local_loader().
  template <typename Dataset>
  Loader<Dataset> loader(Dataset dataset, LoaderOptions options = {}) const {
    compare(dataset, options);
    return Loader<Dataset>(std::move(dataset), rank(), size(), seed(), std::move(options),
                           loaders_.get(), device());
  }

  /// Returns batches of samples that only this rank has, as in an MPI program that computes its
  /// samples. This rank takes all of `dataset` once per epoch, in an order that is independent of
  /// other ranks. Sizes may differ between ranks. Every rank gets the same number of batches: as
  /// many as the rank with the most samples needs. A rank with fewer samples spreads them over this
  /// number of batches. Its batches are smaller, and no sample is left out or used twice. With a
  /// mean loss, a sample in a smaller batch then has more weight; with Loss::sum all samples have
  /// equal weight.
  /// Snapshots hold the position of the loader. Each rank must resume with the number of samples
  /// that it had. With another number of ranks or another batch size, the interrupted epoch starts
  /// again, and ResumeReport says so.
  /// Every rank must call it, with the same options. Throws Error (exit code data) on every rank if
  /// a rank has fewer samples than there are batches, or would leave out whole batches with
  /// drop_last.
  template <typename Dataset>
  Loader<Dataset> local_loader(Dataset dataset, LoaderOptions options = {}) const {
    auto sizes = detail::samples_of_each_rank(control(), detail::dataset_size(dataset), options);
    return Loader<Dataset>(std::move(dataset), std::move(sizes), rank(), seed(), std::move(options),
                           loaders_.get(), device());
  }

  /// Returns a loader for evaluate(): each sample of `dataset` once, on any number of ranks, even
  /// if there are fewer samples than ranks. Snapshots hold nothing of it. Of the options it uses
  /// batch_size, workers, prefetch and compare_ranks (see loader()). Every rank must call it, with
  /// the same dataset and options. Throws Error (exit code data) on every rank if the dataset is
  /// empty.
  template <typename Dataset>
  ValidationLoader<Dataset> validation_loader(Dataset dataset,
                                              const LoaderOptions& options = {}) const {
    compare(dataset, options);
    return ValidationLoader<Dataset>(std::move(dataset), rank(), size(), seed(), options);
  }

  /// The positions of this rank's loaders.
  LoaderPlaces& loaders() const { return *loaders_; }

  /// Registers the digest of an array that must be equal on all ranks when the program ends, such
  /// as the final weights of a Trainer. run() compares the digests after all ranks have finished.
  void hold_at_end(const std::string& name, uint64_t digest) const;

  /// A summary of one screen: ranks, nodes, device and why it was chosen, threads, transport,
  /// versions. Empty on all ranks but rank 0.
  std::string summary() const;

 private:
  struct Session;
  Runtime(std::string program, std::unique_ptr<Session> session);
  void construct_in_turns(const std::function<torch::nn::Module&()>& make) const;

  template <typename Dataset>
  void compare(Dataset& dataset, const LoaderOptions& options) const {
    if (size() > 1) {
      const auto numbers_of = [&](size_t index) {
        return detail::sample_numbers(dataset, index, SampleSeeds{seed(), 0});
      };
      detail::require_same_data(control(), detail::dataset_size(dataset), options, numbers_of);
    }
  }

  RuntimeOptions options_;
  std::string program_;
  std::unique_ptr<Session> session_;
  Communicator world_;
  Communicator control_;
  c10::Device device_;
  int threads_ = 1;
  bool threads_are_named_ = false;
  std::shared_ptr<LoaderPlaces> loaders_ = std::make_shared<LoaderPlaces>();

  friend int run(int argc, char** argv, const RuntimeOptions& options,
                 const std::function<void(Runtime&)>& body);
  struct Ends {
    std::vector<std::string> names;
    std::vector<uint64_t> digests;
  };
  std::shared_ptr<Ends> ends_ = std::make_shared<Ends>();
};

/// Runs `body(runtime)` and returns the exit code of the program. For main functions:
///   int main(int c, char** v) {
///     return lockstep::run(c, v, [](lockstep::Runtime& runtime) {...});
///   }
/// The exit code is 0 on success, and the code of a lockstep::Error. For another exception it is
/// out_of_memory or peer_lost if it reports that memory or the device failed, else 1. The text
/// of the exception is printed once, with the rank. The text of a LibTorch error is printed without
/// its backtrace, unless LOCKSTEP_BACKTRACE=1.
/// A rank that fails exits without waiting for the others. Those that wait for it in a collective
/// throw a CommunicationError with its text and exit code; the launcher ends the others. If no rank
/// failed, but the last Trainers left different weights or moments on some ranks, all ranks return
/// diverged.
int run(int argc, char** argv, const std::function<void(Runtime&)>& body);
/// With options of the Runtime.
int run(int argc, char** argv, const RuntimeOptions& options,
        const std::function<void(Runtime&)>& body);

}  // namespace lockstep
