#include <lockstep/collectives/error.h>
#include <lockstep/runtime/data/distributed_sampler.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

namespace lockstep {
namespace {

/// The finaliser of SplitMix64: every bit of the input changes about half of the output's.
uint64_t mix(uint64_t value) {
  value += 0x9e3779b97f4a7c15ULL;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

/// Uniform in [0, bound). std::uniform_int_distribution differs between standard libraries.
uint64_t draw_below(uint64_t bound, std::mt19937_64& generator) {
  const uint64_t unbiased =
      std::numeric_limits<uint64_t>::max() - std::numeric_limits<uint64_t>::max() % bound;
  uint64_t value = generator();
  while (value >= unbiased) {
    value = generator();
  }
  return value % bound;
}

/// Samples at positions rank, rank + ranks, ... below size.
int64_t share(int64_t size, int64_t rank, int64_t ranks) {
  return (size - rank + ranks - 1) / ranks;
}

}  // namespace

DistributedSampler::DistributedSampler(size_t size, int rank, int ranks, uint64_t seed,
                                       bool shuffle, int64_t batch_size, bool drop_last)
    : size_(static_cast<int64_t>(size)),
      rank_(rank),
      ranks_(ranks),
      seed_(seed),
      shuffle_(shuffle),
      batch_size_(batch_size),
      drop_last_(drop_last) {
  LOCKSTEP_CHECK(ranks >= 1 && rank >= 0 && rank < ranks, "DistributedSampler: rank is ", rank,
                 " of ", ranks, " ranks, expected 0 <= rank < ranks");
  LOCKSTEP_CHECK(batch_size >= 1, "DistributedSampler: batch_size is ", batch_size,
                 ", expected 1 or more");
  LOCKSTEP_CHECK_CODE(size_ >= ranks_, ExitCode::data, "DistributedSampler: the dataset has ", size,
                      " samples for ", ranks,
                      " ranks, expected one or more for each; use fewer ranks or more data");
  LOCKSTEP_CHECK_CODE(batches() >= 1, ExitCode::data, "DistributedSampler: the dataset has ", size,
                      " samples, with drop_last fewer than one batch of ", batch_size,
                      " for each of ", ranks, " ranks; lower batch_size or switch drop_last off");
}

int64_t DistributedSampler::batches(int64_t start) const {
  const int64_t smallest = share(size_ - start, ranks_ - 1, ranks_);
  const int64_t largest = share(size_ - start, 0, ranks_);
  return drop_last_ ? smallest / batch_size_
                    : std::min((largest + batch_size_ - 1) / batch_size_, smallest);
}

int64_t DistributedSampler::samples(int rank, int64_t start) const {
  return drop_last_ ? batches(start) * batch_size_ : share(size_ - start, rank, ranks_);
}

int64_t DistributedSampler::begin_of(int rank, int64_t batch, int64_t start) const {
  // Keep one sample for each batch that is still to come.
  return std::min(batch * batch_size_, samples(rank, start) - (batches(start) - batch));
}

std::vector<size_t> DistributedSampler::batch(SamplerPosition position) {
  check(position);
  const int64_t start = position.start;
  const int64_t begin = begin_of(rank_, position.batch, start);
  const int64_t end = position.batch + 1 == batches(start)
                          ? samples(rank_, start)
                          : begin_of(rank_, position.batch + 1, start);
  std::vector<size_t> indices;
  indices.reserve(static_cast<size_t>(end - begin));
  for (int64_t i = begin; i < end; ++i) {
    const auto place = static_cast<size_t>(start + rank_ + i * ranks_);
    indices.push_back(shuffle_ ? order(position.epoch)[place] : place);
  }
  return indices;
}

SamplerPosition DistributedSampler::after(SamplerPosition position) const {
  if (position.batch + 1 < batches(position.start)) {
    return {position.epoch, position.batch + 1, position.start};
  }
  return {position.epoch + 1, 0, 0};
}

void DistributedSampler::check(SamplerPosition position) const {
  LOCKSTEP_CHECK(position.epoch >= 0 && position.start >= 0 && position.start < size_ &&
                     position.batch >= 0 && position.batch < batches(position.start),
                 "rank ", rank_, ": there is no batch ", position.batch, " of epoch ",
                 position.epoch, ", an epoch of ", size_ - position.start, " samples on ", ranks_,
                 " ranks has ", batches(position.start), " batches of ", batch_size_,
                 "; resume with the dataset, ranks and batch size of the saved run");
}

int64_t DistributedSampler::taken(SamplerPosition position) const {
  check(position);
  int64_t samples = position.start;
  for (int rank = 0; rank < ranks_; ++rank) {
    samples += begin_of(rank, position.batch, position.start);
  }
  return samples;
}

SamplerPosition DistributedSampler::after_samples(int64_t epoch, int64_t taken) const {
  return batches(taken) > 0 ? SamplerPosition{epoch, 0, taken} : SamplerPosition{epoch + 1, 0, 0};
}

std::vector<size_t> DistributedSampler::shuffled(size_t size, uint64_t seed, int64_t epoch) {
  std::vector<size_t> order(size);
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937_64 generator(mix(mix(seed) + static_cast<uint64_t>(epoch)));
  for (size_t i = size; i > 1; --i) {
    std::swap(order[i - 1], order[draw_below(i, generator)]);
  }
  return order;
}

const std::vector<size_t>& DistributedSampler::order(int64_t epoch) {
  if (order_epoch_ != epoch) {
    order_ = shuffled(static_cast<size_t>(size_), seed_, epoch);
    order_epoch_ = epoch;
  }
  return order_;
}

}  // namespace lockstep
