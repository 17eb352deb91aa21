#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <lockstep/collectives/error.h>
#include <lockstep/online/sample_buffer.h>
#include <lockstep/runtime/process/mixed_seed.h>
#include <lockstep/runtime/runtime.h>
#include <lockstep/runtime/sample_random.h>
#include <lockstep/runtime/trainer.h>

#include <algorithm>

namespace lockstep {
namespace {

/// Epoch number of the random numbers of pushes; batches have their own numbers, from 0.
constexpr int64_t kPushes = -1;

/// From 0 to `end` - 1.
int64_t below(uint64_t random, int64_t end) {
  return static_cast<int64_t>(random % static_cast<uint64_t>(end));
}

int64_t bytes_of(const std::vector<at::Tensor>& sample) {
  int64_t bytes = 0;
  for (const at::Tensor& part : sample) {
    bytes += static_cast<int64_t>(part.nbytes());
  }
  return bytes;
}

int64_t capacity_for(const std::vector<at::Tensor>& like, const SampleBufferOptions& options) {
  LOCKSTEP_CHECK(!like.empty() && std::all_of(like.begin(), like.end(),
                                              [](const auto& part) { return part.defined(); }),
                 "SampleBuffer: a sample needs a tensor or more, all defined");
  LOCKSTEP_CHECK(options.capacity() >= 1, "SampleBufferOptions: capacity is ", options.capacity(),
                 ", it must be at least 1");
  int64_t capacity = options.capacity();
  if (options.capacity_bytes() != 0) {
    const int64_t bytes = std::max<int64_t>(bytes_of(like), 1);
    LOCKSTEP_CHECK(options.capacity_bytes() >= bytes, "SampleBufferOptions: capacity_bytes is ",
                   options.capacity_bytes(), ", but one sample has ", bytes, " bytes");
    capacity = std::min(capacity, options.capacity_bytes() / bytes);
  }
  const bool replays = options.policy() == SamplePolicy::replay;
  LOCKSTEP_CHECK(options.batch_size() >= 1 && (replays || options.batch_size() <= capacity),
                 "SampleBufferOptions: batch_size is ", options.batch_size(),
                 ", it must be from 1 to the capacity, ", capacity);
  return capacity;
}

}  // namespace

SampleBuffer::SampleBuffer(const Runtime& runtime, const std::vector<at::Tensor>& like,
                           const SampleBufferOptions& options)
    : options_(options),
      seed_(detail::mixed_seed(runtime.seed(), static_cast<uint64_t>(runtime.rank()))),
      capacity_(capacity_for(like, options)) {
  for (const at::Tensor& part : like) {
    sizes_.push_back({capacity_});
    sizes_.back().insert(sizes_.back().end(), part.sizes().begin(), part.sizes().end());
    dtypes_.push_back(part.scalar_type());
    storage_.push_back(at::zeros(sizes_.back(), part.scalar_type()));
  }
}

int64_t SampleBuffer::size() const {
  return std::min(pushed_, capacity_);
}

bool SampleBuffer::ready() const {
  return size() >= (options_.policy() == SamplePolicy::replay ? 1 : options_.batch_size());
}

/// A resumed Trainer replaces the tensors by those of its snapshot.
void SampleBuffer::require_storage() const {
  for (size_t i = 0; i < storage_.size(); ++i) {
    LOCKSTEP_CHECK_CODE(storage_[i].defined() && storage_[i].sizes() == sizes_[i] &&
                            storage_[i].scalar_type() == dtypes_[i],
                        ExitCode::snapshot, "SampleBuffer: part ", i, " of the samples is ",
                        dtypes_[i], " ", c10::IntArrayRef(sizes_[i]),
                        ", capacity first; the snapshot has ", storage_[i].toString(), " ",
                        storage_[i].sizes(), "; resume with the buffer of the saved run");
  }
}

/// Where the next sample goes; -1: nowhere.
int64_t SampleBuffer::slot_of_next() {
  const int64_t number = pushed_++;
  if (number < capacity_ || options_.policy() != SamplePolicy::reservoir) {
    return number % capacity_;
  }
  const SampleSeeds seeds{seed_, kPushes};
  const int64_t place = below(seeds.of(static_cast<size_t>(number)), number + 1);
  return place < capacity_ ? place : -1;
}

void SampleBuffer::push(const std::vector<at::Tensor>& sample) {
  require_storage();
  LOCKSTEP_CHECK_CODE(sample.size() == storage_.size(), ExitCode::data,
                      "SampleBuffer: a sample has ", storage_.size(), " tensors, not ",
                      sample.size());
  for (size_t i = 0; i < sample.size(); ++i) {
    const c10::IntArrayRef expected = c10::IntArrayRef(sizes_[i]).slice(1);
    LOCKSTEP_CHECK_CODE(sample[i].defined() && sample[i].sizes() == expected &&
                            sample[i].scalar_type() == dtypes_[i],
                        ExitCode::data, "SampleBuffer: part ", i, " of the sample is ",
                        sample[i].toString(), " ", sample[i].sizes(), "; expected ", dtypes_[i],
                        " ", expected);
  }
  const int64_t slot = slot_of_next();
  for (size_t i = 0; i < sample.size() && slot >= 0; ++i) {
    storage_[i].select(0, slot).copy_(sample[i].detach());
  }
}

/// Floyd's algorithm draws different samples with one random number each.
std::vector<int64_t> SampleBuffer::drawn() const {
  const SampleSeeds seeds{seed_, batches_};
  const int64_t count = options_.batch_size(), kept = size();
  std::vector<int64_t> picks;
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t random = seeds.of(static_cast<size_t>(i));
    if (options_.policy() == SamplePolicy::replay) {
      picks.push_back(below(random, kept));
      continue;
    }
    const int64_t last = kept - count + i;
    const int64_t pick = below(random, last + 1);
    const bool is_new = std::find(picks.begin(), picks.end(), pick) == picks.end();
    picks.push_back(is_new ? pick : last);
  }
  return picks;
}

std::vector<at::Tensor> SampleBuffer::batch() {
  require_storage();
  LOCKSTEP_CHECK_CODE(ready(), ExitCode::data, "SampleBuffer: a batch needs ",
                      options_.policy() == SamplePolicy::replay ? 1 : options_.batch_size(),
                      " samples, the buffer has ", size(), "; push more, or ask ready() first");
  const at::Tensor picks = at::tensor(drawn(), at::kLong);
  ++batches_;
  std::vector<at::Tensor> parts;
  for (const at::Tensor& part : storage_) {
    parts.push_back(part.index_select(0, picks));
  }
  return parts;
}

void SampleBuffer::save_in(Trainer& trainer, const std::string& name) {
  for (size_t i = 0; i < storage_.size(); ++i) {
    trainer.state(c10::str(name, ".", i), storage_[i]);
  }
  trainer.state(name + ".pushed", pushed_);
  trainer.state(name + ".batches", batches_);
}

}  // namespace lockstep
