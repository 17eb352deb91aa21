#include <lockstep/collectives/check.h>
#include <lockstep/runtime/data/impl/mixed_seed.h>
#include <lockstep/runtime/distributed_sampler.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

namespace lockstep {
namespace {

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

int64_t rounded_up(int64_t samples, int64_t batch_size) {
  return (samples + batch_size - 1) / batch_size;
}

}  // namespace

DistributedSampler::DistributedSampler(size_t size, int rank, int ranks, uint64_t seed,
                                       bool shuffle, int64_t batch_size, bool drop_last,
                                       std::vector<double> weights, int64_t leaves)
    : size_(static_cast<int64_t>(size)),
      rank_(rank),
      ranks_(ranks),
      seed_(seed),
      shuffle_(shuffle),
      batch_size_(batch_size),
      drop_last_(drop_last),
      leaves_(leaves) {
  LOCKSTEP_CHECK(ranks >= 1 && rank >= 0 && rank < ranks, "DistributedSampler: rank is ", rank,
                 " of ", ranks, " ranks, expected 0 <= rank < ranks");
  LOCKSTEP_CHECK(batch_size >= 1, "DistributedSampler: batch_size is ", batch_size,
                 ", expected 1 or more");
  LOCKSTEP_CHECK(leaves >= 0 && leaves % ranks == 0, "DistributedSampler: ", leaves,
                 " leaves cannot be shared equally by ", ranks,
                 " ranks; use a number of ranks that divides the leaves");
  const char* takers = leaves > 0 ? " leaves" : " ranks";
  LOCKSTEP_CHECK_CODE(size_ >= shares(), ExitCode::data, "DistributedSampler: the dataset has ",
                      size, " samples for ", shares(), takers,
                      ", expected one or more for each; use fewer", takers, " or more data");
  LOCKSTEP_CHECK_CODE(batches() >= 1, ExitCode::data, "DistributedSampler: the dataset has ", size,
                      " samples, with drop_last fewer than one batch of ", batch_size,
                      " for each of ", shares(), takers,
                      "; lower batch_size or switch drop_last off");
  sum_weights(weights);
}

void DistributedSampler::sum_weights(const std::vector<double>& weights) {
  if (weights.empty()) {
    return;
  }
  LOCKSTEP_CHECK(static_cast<int64_t>(weights.size()) == size_,
                 "DistributedSampler: ", weights.size(), " weights, expected one for each of the ",
                 size_, " samples");
  double sum = 0.0;
  for (size_t i = 0; i < weights.size(); ++i) {
    LOCKSTEP_CHECK(weights[i] >= 0.0 && std::isfinite(weights[i]), "DistributedSampler: weight ", i,
                   " is ", weights[i], ", expected a finite number >= 0");
    sum += weights[i];
    weight_sums_.push_back(sum);
  }
  LOCKSTEP_CHECK(sum > 0.0 && std::isfinite(sum), "DistributedSampler: the weights sum to ", sum,
                 ", expected a finite number > 0");
}

int64_t DistributedSampler::weights_digest() const {
  uint64_t digest = 0;
  for (const double sum : weight_sums_) {
    uint64_t bits = 0;
    std::memcpy(&bits, &sum, sizeof(bits));
    digest = detail::mixed_seed(digest, bits);
  }
  return static_cast<int64_t>(digest >> 1U);
}

/// By the generator's own bits: std::discrete_distribution differs between standard libraries.
std::vector<size_t> DistributedSampler::drawn(int64_t epoch) const {
  std::mt19937_64 generator(
      detail::mixed_seed(detail::mixed_seed(seed_) + static_cast<uint64_t>(epoch)));
  // The last sample that can be drawn, where rounding reaches the whole sum.
  const auto last = std::lower_bound(weight_sums_.begin(), weight_sums_.end(), weight_sums_.back());
  std::vector<size_t> order(static_cast<size_t>(size_));
  for (size_t& index : order) {
    const double share = static_cast<double>(generator() >> 11U) * 0x1p-53;
    const auto found = std::upper_bound(weight_sums_.begin(), last, share * weight_sums_.back());
    index = static_cast<size_t>(found - weight_sums_.begin());
  }
  return order;
}

DistributedSampler DistributedSampler::local(std::vector<int64_t> sizes, int rank, uint64_t seed,
                                             bool shuffle, int64_t batch_size, bool drop_last) {
  const int64_t all = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  // Enough for the constructor: check_local() says what is wrong.
  const auto ranks = static_cast<int>(sizes.size());
  DistributedSampler sampler(static_cast<size_t>(std::max<int64_t>(all, ranks)), rank, ranks, seed,
                             shuffle, batch_size);
  sampler.size_ = all;
  sampler.sizes_ = std::move(sizes);
  sampler.drop_last_ = drop_last;
  sampler.check_local();
  return sampler;
}

void DistributedSampler::check_local() const {
  const auto least = std::min_element(sizes_.begin(), sizes_.end()) - sizes_.begin();
  const auto most = std::max_element(sizes_.begin(), sizes_.end()) - sizes_.begin();
  const int64_t smallest = sizes_[static_cast<size_t>(least)];
  const int64_t largest = sizes_[static_cast<size_t>(most)];
  LOCKSTEP_CHECK_CODE(smallest >= 1, ExitCode::data, "rank ", least,
                      " has no sample of its own; give it some, or leave it out of the run");
  if (drop_last_) {
    LOCKSTEP_CHECK_CODE(
        batches() >= 1 && largest - batches() * batch_size_ < batch_size_, ExitCode::data, "rank ",
        least, " has ", smallest, " samples of its own and rank ", most, " has ", largest,
        ": with drop_last and batches of ", batch_size_, " each makes ", batches(),
        " batches, and rank ", most, " would leave out ", largest - batches() * batch_size_,
        " samples in each epoch; switch drop_last off");
  } else {
    LOCKSTEP_CHECK_CODE(batches() <= smallest, ExitCode::data, "rank ", least, " has ", smallest,
                        " samples of its own, too few for ", batches(), " batches, which rank ",
                        most, " makes of its ", largest, "; raise batch_size from ", batch_size_,
                        " to ", rounded_up(largest, smallest),
                        " or more, or deal the samples out more evenly");
  }
}

int64_t DistributedSampler::share(int64_t rank, int64_t start) const {
  return is_local() ? sizes_[static_cast<size_t>(rank)]
                    : (size_ - start - rank + shares() - 1) / shares();
}

int64_t DistributedSampler::largest_share(int64_t start) const {
  return is_local() ? *std::max_element(sizes_.begin(), sizes_.end()) : share(0, start);
}

int64_t DistributedSampler::smallest_share(int64_t start) const {
  return is_local() ? *std::min_element(sizes_.begin(), sizes_.end()) : share(shares() - 1, start);
}

int64_t DistributedSampler::batches(int64_t start) const {
  return rounds(start) * batches_per_update();
}

int64_t DistributedSampler::rounds(int64_t start) const {
  if (drop_last_) {
    return smallest_share(start) / batch_size_;
  }
  const int64_t wanted = rounded_up(largest_share(start), batch_size_);
  return is_local() ? wanted : std::min(wanted, smallest_share(start));
}

int64_t DistributedSampler::samples() const {
  int64_t all = 0;
  for (int64_t i = 0; i < batches_per_update(); ++i) {
    all += samples(rank_ * batches_per_update() + i, 0);
  }
  return all;
}

int64_t DistributedSampler::samples(int64_t share, int64_t start) const {
  return drop_last_ ? rounds(start) * batch_size_ : this->share(share, start);
}

int64_t DistributedSampler::begin_of(int64_t share, int64_t round, int64_t start) const {
  const int64_t mine = samples(share, start);
  const int64_t all = rounds(start);
  if (is_local() && rounded_up(mine, batch_size_) < all) {
    return round * mine / all;
  }
  // Keep one sample for each batch that is still to come.
  return std::min(round * batch_size_, mine - (all - round));
}

int64_t DistributedSampler::sizes_digest() const {
  uint64_t digest = 0;
  for (const int64_t size : sizes_) {
    digest = detail::mixed_seed(digest, static_cast<uint64_t>(size));
  }
  return static_cast<int64_t>(digest >> 1U);
}

uint64_t DistributedSampler::samples_seed() const {
  return is_local() ? detail::mixed_seed(seed_, static_cast<uint64_t>(rank_)) : seed_;
}

std::vector<size_t> DistributedSampler::batch(SamplerPosition position) {
  check(position);
  const int64_t start = position.start;
  const int64_t round = position.batch / batches_per_update();
  const int64_t mine = rank_ * batches_per_update() + position.batch % batches_per_update();
  const int64_t begin = begin_of(mine, round, start);
  const int64_t end =
      round + 1 == rounds(start) ? samples(mine, start) : begin_of(mine, round + 1, start);
  std::vector<size_t> indices;
  indices.reserve(static_cast<size_t>(end - begin));
  for (int64_t i = begin; i < end; ++i) {
    const auto place = static_cast<size_t>(is_local() ? i : start + mine + i * shares());
    const bool ordered = shuffle_ || !weight_sums_.empty();
    indices.push_back(ordered ? order(position.epoch)[place] : place);
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
  LOCKSTEP_CHECK(position.epoch >= 0 && position.start >= 0 &&
                     position.start < (is_local() ? 1 : size_) && position.batch >= 0 &&
                     position.batch < batches(position.start),
                 "rank ", rank_, ": there is no batch ", position.batch, " of epoch ",
                 position.epoch, ", an epoch of ", size_ - position.start, " samples on ", ranks_,
                 " ranks has ", batches(position.start), " batches of ", batch_size_,
                 "; resume with the dataset, ranks and batch size of the saved run");
}

int64_t DistributedSampler::taken(SamplerPosition position) const {
  check(position);
  int64_t samples = position.start;
  for (int64_t share = 0; share < shares(); ++share) {
    samples += begin_of(share, position.batch / batches_per_update(), position.start);
  }
  return samples;
}

SamplerPosition DistributedSampler::after_samples(int64_t epoch, int64_t taken) const {
  return batches(taken) > 0 ? SamplerPosition{epoch, 0, taken} : SamplerPosition{epoch + 1, 0, 0};
}

std::vector<size_t> DistributedSampler::shuffled(size_t size, uint64_t seed, int64_t epoch) {
  std::vector<size_t> order(size);
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937_64 generator(
      detail::mixed_seed(detail::mixed_seed(seed) + static_cast<uint64_t>(epoch)));
  for (size_t i = size; i > 1; --i) {
    std::swap(order[i - 1], order[draw_below(i, generator)]);
  }
  return order;
}

const std::vector<size_t>& DistributedSampler::order(int64_t epoch) {
  if (order_epoch_ != epoch) {
    order_ = !weight_sums_.empty()
                 ? drawn(epoch)
                 : shuffled(static_cast<size_t>(is_local() ? share(rank_, 0) : size_),
                            samples_seed(), epoch);
    order_epoch_ = epoch;
  }
  return order_;
}

}  // namespace lockstep
