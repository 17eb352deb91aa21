#pragma once

#include <lockstep/runtime/batch.h>
#include <lockstep/runtime/distributed_sampler.h>
#include <lockstep/runtime/loader_options.h>

#pragma push_macro("LOCKSTEP_OWN_LIBRARY")
#define LOCKSTEP_OWN_LIBRARY 1
#include <lockstep/runtime/data/impl/dataset_access.h>
#include <lockstep/runtime/data/impl/device_copies.h>
#include <lockstep/runtime/data/impl/loader_places.h>
#include <lockstep/runtime/data/impl/worker_threads.h>
#pragma pop_macro("LOCKSTEP_OWN_LIBRARY")

#include <chrono>
#include <deque>
#include <exception>
#include <future>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep {

template <typename Dataset>
class ValidationLoader;

/// Loads this rank's share of a dataset in batches, for a range-for:
///
///   for (auto& batch : loader) { ... }
///
/// `Dataset` is a torch::data dataset, or any type with size() and either get(index) or
/// get_batch(indices) that returns a ready batch. Samples are collated member by member. Tensors
/// are stacked and numbers become a tensor. A std::pair, std::tuple or torch::data::Example of
/// samples becomes the same type of batches. For another type, define `collate(std::vector<T>)` in
/// the namespace of T; otherwise the batch is the std::vector<T>.
///
/// Epochs: one loop runs the remaining epochs of the current group of `epochs` epochs. The next
/// loop runs the next group, in a new order if shuffled.
/// A loader trains if the Trainer made a step while the loader had a current batch. After
/// Trainer::resume, the first loop over a training loader of Runtime::loader continues the loop of
/// the saved run, with the batches that would have followed. If all `epochs` of that loop were
/// complete, the loop runs no batch: a finished run that is started again ends at once. A program
/// that counts epochs itself, with one loop per epoch, starts at epoch().
/// A loader that does not train (validation) also continues at its position, but a loop over it is
/// never empty: in the first epoch after a resume it sees all its batches, as in any other epoch.
///
/// Random numbers: while get(index) runs, LibTorch's random operators on the host (torch::rand and
/// similar) draw from a generator that belongs to (seed, epoch, index): see SampleRandom. So an
/// augmented sample has the same bits with any number of workers and ranks and after a resume.
/// Loading does not advance the stream that dropout uses. The same holds for a get_batch() that
/// returns a std::vector of samples, which is called for one index at a time, and for torch::data
/// transforms above it. A get_batch() that returns a ready batch draws from one generator for the
/// whole batch, so its bits depend on which samples are in the batch. To seed other libraries, take
/// a seed from torch::randint. Generators that get() keeps itself are not managed.
///
/// Ranks: each rank makes a loader with the same arguments except `rank`. Every rank gets the same
/// number of batches (see DistributedSampler). No communication. Threads: one at a time; up to
/// LoaderOptions::threads() threads call get() at the same time.
/// Errors: if get() throws, throws Error that names rank, epoch, batch and sample, with the exit
/// code of the exception, or data if it has none. The position stays at that batch. Batches that
/// are prepared ahead (LoaderOptions::workers, prefetch) change none of this: an exception leaves
/// the loop where the loop asks for that batch, the position counts only batches that the loop got,
/// and a loop that is left early drops the others.
template <typename Dataset>
class Loader {
 public:
  using Batch = std::decay_t<decltype(detail::load_batch(
      std::declval<Dataset&>(), std::declval<std::vector<size_t>>(), std::declval<SampleSeeds>()))>;

  /// `places`: registry through which snapshots find this loader's position; may be null.
  /// `device`: where LoaderOptions::prefetch copies batches to.
  Loader(Dataset dataset, int rank, int ranks, uint64_t seed, LoaderOptions options = {},
         LoaderPlaces* places = nullptr, c10::Device device = c10::kCPU)
      : options_((options.validate(), std::move(options))),
        rank_(rank),
        device_(device),
        dataset_(std::make_shared<Dataset>(std::move(dataset))),
        place_(std::make_shared<LoaderPlace>(DistributedSampler(
            detail::dataset_size(*dataset_), rank, ranks, seed, options_.shuffle(),
            options_.batch_size(), options_.drop_last(),
            options_.weights_of(detail::dataset_size(*dataset_)), options_.leaves()))) {
    if (places != nullptr) {
      places->add(place_);
    }
  }
  /// A loader of samples that only this rank has. `sizes`: the number of samples of each rank. See
  /// Runtime::local_loader.
  Loader(Dataset dataset, std::vector<int64_t> sizes, int rank, uint64_t seed,
         LoaderOptions options, LoaderPlaces* places, c10::Device device = c10::kCPU)
      : options_((options.validate(), std::move(options))),
        rank_(rank),
        device_(device),
        dataset_(std::make_shared<Dataset>(std::move(dataset))),
        place_(std::make_shared<LoaderPlace>(
            DistributedSampler::local(std::move(sizes), rank, seed, options_.shuffle(),
                                      options_.batch_size(), options_.drop_last()))) {
    options_.validate_for_local_loader();
    if (places != nullptr) {
      places->add(place_);
    }
  }

  struct End {};
  class Iterator {
   public:
    explicit Iterator(Loader& loader) : loader_(&loader) {}
    Batch& operator*() const { return loader_->current_.value(); }
    Batch* operator->() const { return &loader_->current_.value(); }
    Iterator& operator++() {
      loader_->advance();
      return *this;
    }
    bool operator!=(End) const { return loader_->current_.has_value(); }

   private:
    Loader* loader_;
  };

  /// Starts at position(). Only one loop may run at a time.
  Iterator begin() {
    start_loop();
    advance();
    return Iterator(*this);
  }
  End end() const { return {}; }

  int64_t batches_per_epoch() const { return place_->sampler().batches(); }
  /// Batches from position() to the end of its epoch. The same on every rank.
  int64_t batches_left() const {
    const SamplerPosition next = position();
    return place_->sampler().batches(next.start) - next.batch;
  }
  /// LoaderOptions::epochs: the number of epochs of one loop.
  int64_t epochs_per_loop() const { return options_.epochs(); }
  /// Epoch of the current batch. Without one, and after seek(): the epoch of the next batch in the
  /// loop that runs or comes next. After resuming a loop that was complete: the last epoch of that
  /// loop.
  int64_t epoch() const {
    return current_ && seeks_ == place_->seeks()
               ? epoch_
               : position().epoch - (place_->is_behind_loop(options_.epochs()) ? 1 : 0);
  }
  /// True while the loop has the first batch of an epoch, where a state that is carried from batch
  /// to batch begins anew.
  bool begins_epoch() const { return current_ && begins_epoch_; }
  /// Position of the next batch. Snapshots store it.
  SamplerPosition position() const { return place_->next(); }
  /// Makes the next loop, or the loop that runs, continue at `position`. Throws Error if there is
  /// no batch at `position`.
  void seek(SamplerPosition position) { place_->seek(position); }
  /// What a later return_to() restores: position(), and whether the next loop continues that of a
  /// resumed run. For a search that trains for a while, such as find_learning_rate().
  LoaderPlace::Mark mark() const { return place_->mark(); }
  void return_to(const LoaderPlace::Mark& mark) { place_->return_to(mark); }
  /// Total seconds that loops have waited for batches so far.
  double wait_seconds() const { return wait_seconds_; }
  const Dataset& dataset() const { return *dataset_; }

 private:
  void start_loop() {
    pending_.clear();
    if (options_.prefetch() > 0 && device_.is_cuda() && !copies_on_) {
      copies_on_ = DeviceCopies::stream_of(device_);
    }
    workers_ =
        options_.threads() > 0 ? std::make_unique<WorkerThreads>(options_.threads()) : nullptr;
    seeks_ = place_->seeks();
    ahead_ = position();
    end_epoch_ = place_->is_behind_loop(options_.epochs())
                     ? ahead_.epoch
                     : (ahead_.epoch / options_.epochs() + 1) * options_.epochs();
    place_->begin_loop();
  }

  void advance() {
    current_.reset();
    place_->hold(false);
    if (seeks_ != place_->seeks()) {
      start_loop();
    }
    const SamplerPosition at = position();
    if (at.epoch >= end_epoch_) {
      workers_.reset();
      return;
    }
    const auto start = std::chrono::steady_clock::now();
    current_.emplace(workers_ ? take_ahead(at) : work()(at, place_->sampler().batch(at)));
    const double waited =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    wait_seconds_ += waited;
    place_->add_wait(waited);
    epoch_ = at.epoch;
    begins_epoch_ = at.batch == 0 && at.start == 0;
    place_->hold(true);
    place_->step();
  }

  /// A batch that a worker loads ahead of the loop. The loop's thread takes it, and begins its
  /// copies to the device.
  struct Ahead {
    std::future<Batch> loading;
    std::optional<Batch> batch{};
    std::exception_ptr failure{};            // of the load; of interest once the loop comes to it
    std::unique_ptr<DeviceCopies> copies{};  // null: the batch is as the dataset made it

    bool is_loaded() const {
      return batch || failure ||
             loading.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
    }
    void take(const std::optional<c10::Stream>& copies_on) {
      if (batch || failure) {
        return;
      }
      try {
        batch.emplace(loading.get());
      } catch (...) {
        failure = std::current_exception();
        return;
      }
      if (copies_on) {
        copies = std::make_unique<DeviceCopies>(*copies_on);
        batch.emplace(detail::BatchTensors<Batch>::map(
            std::move(*batch), [&](const at::Tensor& tensor) { return copies->add(tensor); }));
        copies->close();
      }
    }
  };

  Batch take_ahead(SamplerPosition at) {
    while (ahead_.epoch < end_epoch_ && pending_.size() <= options_.ahead()) {
      auto job = std::make_shared<std::packaged_task<Batch()>>(
          [this_load = work(), at = ahead_, indices = place_->sampler().batch(ahead_)] {
            return this_load(at, indices);
          });
      pending_.push_back(Ahead{job->get_future()});
      workers_->add([job] { (*job)(); });
      ahead_ = place_->sampler().after(ahead_);
    }
    try {
      pending_.front().take(copies_on_);
      for (size_t i = 1; copies_on_ && i < pending_.size() && pending_[i].is_loaded(); ++i) {
        pending_[i].take(copies_on_);
      }
      Ahead next = std::move(pending_.front());
      pending_.pop_front();
      if (next.failure) {
        std::rethrow_exception(next.failure);
      }
      if (next.copies) {
        next.copies->hand_over();
      }
      return std::move(*next.batch);
    } catch (...) {
      pending_.clear();
      workers_.reset();  // first end the loads under way
      workers_ = std::make_unique<WorkerThreads>(options_.threads());
      ahead_ = at;  // a loop that goes on asks for this batch again
      throw;
    }
  }

  /// The data that a worker needs. It does not refer to the Loader, which may be moved between
  /// loops.
  struct Load {
    int rank;
    uint64_t seed;
    std::shared_ptr<Dataset> dataset;  // a Loader that is assigned to has workers with the old one
    std::optional<c10::Device> copied_to;
    Batch operator()(SamplerPosition at, const std::vector<size_t>& indices) const {
      try {
        Batch batch = detail::load_batch(*dataset, indices, SampleSeeds{seed, at.epoch});
        if (!copied_to) {
          return batch;
        }
        return detail::BatchTensors<Batch>::map(std::move(batch), [&](const at::Tensor& tensor) {
          return DeviceCopies::page_locked(tensor, *copied_to);
        });
      } catch (const std::exception&) {
        detail::rethrow_as_data_error(
            c10::str("rank ", rank, ": loading batch ", at.batch, " of epoch ", at.epoch));
      }
    }
  };
  Load work() const {
    return {rank_, place_->sampler().samples_seed(), dataset_,
            copies_on_ ? std::optional(copies_on_->device()) : std::nullopt};
  }

  /// Waits for the batches that are being loaded ahead; they stay ready for the loop.
  void finish_ahead() const {
    for (const Ahead& next : pending_) {
      if (next.loading.valid()) {
        next.loading.wait();
      }
    }
  }

  template <typename Other>
  friend class ValidationLoader;

  LoaderOptions options_;
  int rank_;
  c10::Device device_;
  std::optional<c10::Stream> copies_on_;  // with prefetch on a CUDA device
  std::shared_ptr<Dataset> dataset_;      // a ValidationLoader may share it
  std::shared_ptr<LoaderPlace> place_;
  int64_t seeks_ = 0;
  SamplerPosition ahead_;
  int64_t epoch_ = 0;          // of the current batch
  bool begins_epoch_ = false;  // the current batch
  int64_t end_epoch_ = 0;
  double wait_seconds_ = 0.0;
  std::optional<Batch> current_;
  std::deque<Ahead> pending_;
  std::unique_ptr<WorkerThreads> workers_;  // last: its threads use the dataset
};

}  // namespace lockstep
