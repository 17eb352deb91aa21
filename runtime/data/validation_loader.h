#pragma once

#include <lockstep/runtime/loader.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <future>
#include <memory>
#include <utility>
#include <vector>

namespace lockstep {

/// Loads the samples of a dataset for evaluate(): each sample exactly once, on any number of ranks.
///
/// The dataset is divided into batches first, in its own order: batch n begins with sample
/// n * batch_size, and the last batch may be smaller. Rank r then takes the batches r, r + ranks,
/// ... So the batches do not depend on the number of ranks, and no sample is repeated or left out.
/// Some ranks may have one batch less than others, or none: choose a batch_size that gives each
/// rank at least one batch. The random numbers of sample i are those that it has in epoch 0 of a
/// Loader (SampleRandom).
/// Snapshots hold nothing of this loader. Batches are on the host, with LoaderOptions::prefetch
/// too. Ranks: local. Threads: one; up to LoaderOptions::threads() threads call the dataset's get()
/// at the same time.
template <typename Dataset>
class ValidationLoader {
 public:
  using Batch = typename Loader<Dataset>::Batch;

  /// Throws Error (exit code data) for an empty dataset, and Error for an option that has no
  /// meaning here: shuffle, drop_last, epochs, weights.
  ValidationLoader(Dataset dataset, int rank, int ranks, uint64_t seed,
                   const LoaderOptions& options = {})
      : dataset_(std::make_shared<Dataset>(std::move(dataset))),
        rank_(rank),
        first_(rank),
        stride_(ranks),
        seed_(seed),
        batch_size_(options.batch_size()),
        threads_(options.threads()),
        most_ahead_(options.ahead()) {
    options.validate();
    options.validate_for_validation_loader(size());
  }
  /// All samples of `loader`, of its batch size. Its position, shuffle, drop_last, epochs and
  /// weights have no effect and do not change. If each rank has different data
  /// (Runtime::local_loader), each rank takes all of its own.
  explicit ValidationLoader(const Loader<Dataset>& loader)
      : dataset_(loader.dataset_),
        rank_(loader.rank_),
        first_(is_local(loader) ? 0 : loader.rank_),
        stride_(is_local(loader) ? 1 : loader.place_->sampler().ranks()),
        seed_(loader.place_->sampler().samples_seed()),
        batch_size_(loader.options_.batch_size()),
        threads_(loader.options_.threads()),
        most_ahead_(loader.options_.ahead()) {
    loader.finish_ahead();  // else its threads and these would call get() at the same time
  }

  /// Number of samples of the dataset.
  int64_t size() const { return static_cast<int64_t>(detail::dataset_size(*dataset_)); }
  /// Number of batches that this rank takes.
  int64_t batches() const {
    const int64_t all = (size() + batch_size_ - 1) / batch_size_;
    return first_ < all ? (all - first_ + stride_ - 1) / stride_ : 0;
  }

  /// Calls body(batch, indices) for each batch of this rank. `indices`: its samples. Throws what
  /// `body` throws, and Error that names rank and sample if a sample cannot be loaded (exit code of
  /// the exception, or data if it has none).
  template <typename Body>
  void for_each(const Body& body) const {
    std::deque<std::future<Batch>> pending;
    const auto workers = threads_ > 0 ? std::make_unique<WorkerThreads>(threads_) : nullptr;
    const int64_t count = batches();
    int64_t ahead = 0;
    for (int64_t number = 0; number < count; ++number) {
      const std::vector<size_t> indices = samples_of(number);
      if (workers == nullptr) {
        Batch batch = load(indices);
        body(batch, indices);
        continue;
      }
      for (; ahead < count && pending.size() <= most_ahead_; ++ahead) {
        auto job = std::make_shared<std::packaged_task<Batch()>>(
            [this, samples = samples_of(ahead)] { return load(samples); });
        pending.push_back(job->get_future());
        workers->add([job] { (*job)(); });
      }
      Batch batch = pending.front().get();
      pending.pop_front();
      body(batch, indices);
    }
  }

  /// A seed that belongs to a batch of these samples.
  uint64_t seed_of(const std::vector<size_t>& indices) const {
    return SampleSeeds{seed_, 0}.of(indices);
  }

 private:
  static bool is_local(const Loader<Dataset>& loader) {
    return loader.place_->sampler().is_local();
  }

  std::vector<size_t> samples_of(int64_t number) const {
    const int64_t begin = (first_ + number * stride_) * batch_size_;
    std::vector<size_t> indices;
    for (int64_t i = begin; i < std::min(begin + batch_size_, size()); ++i) {
      indices.push_back(static_cast<size_t>(i));
    }
    return indices;
  }

  Batch load(const std::vector<size_t>& indices) const {
    try {
      return detail::load_batch(*dataset_, indices, SampleSeeds{seed_, 0});
    } catch (const std::exception&) {
      detail::rethrow_as_data_error(c10::str("rank ", rank_, ": loading samples ", indices.front(),
                                             " to ", indices.back(), " for validation"));
    }
  }

  std::shared_ptr<Dataset> dataset_;
  int rank_;
  int64_t first_;   // batch that this rank takes first
  int64_t stride_;  // from one batch of this rank to the next
  uint64_t seed_;
  int64_t batch_size_;
  int threads_;
  size_t most_ahead_;
};

}  // namespace lockstep
