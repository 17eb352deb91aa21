#pragma once

#include <lockstep/runtime/data/dataset_access.h>
#include <lockstep/runtime/data/distributed_sampler.h>
#include <lockstep/runtime/data/loader_options.h>
#include <lockstep/runtime/data/loader_places.h>
#include <lockstep/runtime/data/worker_threads.h>

#include <chrono>
#include <deque>
#include <future>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace lockstep {

/// This rank's share of a dataset, in batches, for a range-for:
///
///   for (auto& batch : loader) { ... }
///
/// `Dataset` is a torch::data dataset, or anything with size() and either get(index) or
/// get_batch(indices) that returns a ready batch. Samples become a batch member by member: tensors
/// are stacked, numbers become a tensor, std::pair, std::tuple and torch::data::Example of those
/// the same of batches. For a type of your own, write `collate(std::vector<T>)` beside it;
/// otherwise the batch is the std::vector<T>.
///
/// One loop runs the epochs that are left of the current `epochs`; the next loop runs the next
/// ones, in a new order if shuffled. After Trainer::resume the first loop over a loader of
/// Runtime::loader that trains is the one that the saved run was in, and its batches are those that
/// would have followed: none, if all its `epochs` were done, so a finished run that is started
/// again ends at once. A program that counts epochs itself, with one loop for each, begins at
/// epoch(). A loader trains if the Trainer made a step while one of its batches was in hand. Any
/// other goes on at its position, too, but a loop over it is never empty: validation sees all its
/// batches in the first epoch after a resume as in any other.
///
/// Random numbers: while get(index) runs, LibTorch's random operators on the host (torch::rand and
/// its like) draw from a generator that belongs to (seed, epoch, index), see SampleRandom. So an
/// augmented sample has the same bits however many workers and ranks there are, and after a
/// resume, and loading takes nothing from the stream that dropout draws from. The same holds for
/// get_batch() that returns a std::vector of samples, which is called for one index at a time, and
/// for torch::data transforms above it. A get_batch() that returns a ready batch draws from one
/// generator for all of it: its bits depend on which samples are together. For numbers of other
/// libraries take a seed from torch::randint. What get() draws from generators that it keeps is its
/// own affair.
///
/// Ranks: each makes one with the same arguments but `rank`; every rank gets the same number of
/// batches (DistributedSampler says how). No communication. Threads: one at a time; get() is called
/// from `workers` threads at a time.
/// Errors: Error (exit code data) that names rank, epoch, batch and sample when get() throws; the
/// position stays at that batch.
template <typename Dataset>
class Loader {
 public:
  using Batch = std::decay_t<decltype(detail::load_batch(
      std::declval<Dataset&>(), std::declval<std::vector<size_t>>(), std::declval<SampleSeeds>()))>;

  /// `places`: where snapshots find this loader's position, if any.
  Loader(Dataset dataset, int rank, int ranks, uint64_t seed, LoaderOptions options = {},
         LoaderPlaces* places = nullptr)
      : options_((options.validate(), std::move(options))),
        rank_(rank),
        dataset_(std::make_unique<Dataset>(std::move(dataset))),
        place_(std::make_shared<LoaderPlace>(
            DistributedSampler(detail::dataset_size(*dataset_), rank, ranks, seed,
                               options_.shuffle(), options_.batch_size(), options_.drop_last()))) {
    if (places != nullptr) {
      places->add(place_);
    }
  }
  /// Batches of this rank's own samples, of which the ranks have `sizes`: see
  /// Runtime::local_loader.
  Loader(Dataset dataset, std::vector<int64_t> sizes, int rank, uint64_t seed,
         LoaderOptions options, LoaderPlaces* places)
      : options_((options.validate(), std::move(options))),
        rank_(rank),
        dataset_(std::make_unique<Dataset>(std::move(dataset))),
        place_(std::make_shared<LoaderPlace>(
            DistributedSampler::local(std::move(sizes), rank, seed, options_.shuffle(),
                                      options_.batch_size(), options_.drop_last()))) {
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

  /// Starts at position(). One loop at a time.
  Iterator begin() {
    start_loop();
    advance();
    return Iterator(*this);
  }
  End end() const { return {}; }

  int64_t batches_per_epoch() const { return place_->sampler().batches(); }
  /// The epoch of the batch in hand; of the next one in the loop that runs or comes next, if there
  /// is none; the last of that loop, if it goes on with one of a saved run that was done.
  int64_t epoch() const {
    return current_ ? epoch_
                    : position().epoch - (place_->is_behind_loop(options_.epochs()) ? 1 : 0);
  }
  /// The batch that comes next: what a snapshot has to keep.
  SamplerPosition position() const { return place_->next(); }
  /// The next loop, or the one that runs, goes on there. Throws Error if there is no such batch.
  void seek(SamplerPosition position) { place_->seek(position); }
  /// Seconds that loops have waited for batches so far.
  double wait_seconds() const { return wait_seconds_; }
  const Dataset& dataset() const { return *dataset_; }

 private:
  void start_loop() {
    pending_.clear();
    workers_ =
        options_.workers() > 0 ? std::make_unique<WorkerThreads>(options_.workers()) : nullptr;
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
    current_.emplace(workers_ ? take_ahead() : load(at, place_->sampler().batch(at)));
    wait_seconds_ +=
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    epoch_ = at.epoch;
    place_->hold(true);
    place_->step();
  }

  Batch take_ahead() {
    while (ahead_.epoch < end_epoch_ &&
           pending_.size() < 2 * static_cast<size_t>(options_.workers())) {
      auto job = std::make_shared<std::packaged_task<Batch()>>(
          [this_load = work(), at = ahead_, indices = place_->sampler().batch(ahead_)] {
            return this_load(at, indices);
          });
      pending_.push_back(job->get_future());
      workers_->add([job] { (*job)(); });
      ahead_ = place_->sampler().after(ahead_);
    }
    std::future<Batch> next = std::move(pending_.front());
    pending_.pop_front();
    return next.get();
  }

  /// What a worker needs: nothing of the Loader itself, which may be moved between loops.
  struct Load {
    int rank;
    uint64_t seed;
    Dataset* dataset;
    Batch operator()(SamplerPosition at, const std::vector<size_t>& indices) const {
      try {
        return detail::load_batch(*dataset, indices, SampleSeeds{seed, at.epoch});
      } catch (const std::exception&) {
        detail::rethrow_as_data_error(
            c10::str("rank ", rank, ": loading batch ", at.batch, " of epoch ", at.epoch));
      }
    }
  };
  Load work() const { return {rank_, place_->sampler().samples_seed(), dataset_.get()}; }
  Batch load(SamplerPosition at, const std::vector<size_t>& indices) const {
    return work()(at, indices);
  }

  LoaderOptions options_;
  int rank_;
  std::unique_ptr<Dataset> dataset_;
  std::shared_ptr<LoaderPlace> place_;
  int64_t seeks_ = 0;
  SamplerPosition ahead_;
  int64_t epoch_ = 0;  // of the batch in hand
  int64_t end_epoch_ = 0;
  double wait_seconds_ = 0.0;
  std::optional<Batch> current_;
  std::deque<std::future<Batch>> pending_;
  std::unique_ptr<WorkerThreads> workers_;  // last: its threads use the dataset
};

}  // namespace lockstep
