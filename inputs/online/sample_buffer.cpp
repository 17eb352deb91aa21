#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/util/accumulate.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/plain_tensor.h>
#include <lockstep/inputs/sample_buffer.h>
#include <lockstep/runtime/data/impl/mixed_seed.h>
#include <lockstep/runtime/data/impl/sample_random.h>
#include <lockstep/runtime/runtime.h>
#include <lockstep/runtime/trainer.h>

#include <algorithm>

namespace lockstep {
namespace {

/// The epoch number for random numbers of push(); batches use numbers from 0 on.
constexpr int64_t kPushes = -1;

/// Indices in SampleBuffer::memory_, an array of int64.
constexpr int64_t kPushed = 0, kBatches = 1, kLayout = 2;

/// Alignment of parts in elements of memory_: a multiple of the size of every dtype.
int64_t aligned(int64_t place) {
  constexpr int64_t kAlignment = 8;
  return (place + kAlignment - 1) / kAlignment * kAlignment;
}

/// A random number in [0, end).
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
  for (size_t i = 0; i < like.size(); ++i) {
    const std::string why = like[i].is_meta() ? std::string() : detail::why_not_plain(like[i]);
    LOCKSTEP_CHECK(why.empty(), "SampleBuffer: part ", i, " of a sample ", why);
  }
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
      capacity_(capacity_for(like, options)),
      layout_({capacity_}) {
  for (const at::Tensor& part : like) {
    layout_.insert(layout_.end(), {static_cast<int64_t>(part.scalar_type()), part.dim()});
    layout_.insert(layout_.end(), part.sizes().begin(), part.sizes().end());
  }
  int64_t end = aligned(kLayout + static_cast<int64_t>(layout_.size()));
  for (const at::Tensor& part : like) {
    parts_.push_back({{capacity_}, part.scalar_type(), end});
    std::vector<int64_t>& sizes = parts_.back().sizes;
    sizes.insert(sizes.end(), part.sizes().begin(), part.sizes().end());
    const int64_t bytes = capacity_ * static_cast<int64_t>(part.nbytes());
    end = aligned(end + (bytes + 7) / 8);
  }
  memory_ = at::zeros({end}, at::kLong);
  std::copy(layout_.begin(), layout_.end(), memory_.mutable_data_ptr<int64_t>() + kLayout);
}

int64_t SampleBuffer::pushed() const {
  return count(kPushed);
}

int64_t SampleBuffer::batches() const {
  return count(kBatches);
}

int64_t SampleBuffer::size() const {
  return std::min(pushed(), capacity_);
}

bool SampleBuffer::ready() const {
  return size() >= (options_.policy() == SamplePolicy::replay ? 1 : options_.batch_size());
}

/// A resumed Trainer replaces memory_ by the one of its snapshot.
void SampleBuffer::require_layout() const {
  const auto layout = static_cast<int64_t>(layout_.size());
  const bool fits =
      memory_.defined() && memory_.scalar_type() == at::kLong && memory_.dim() == 1 &&
      memory_.numel() >= kLayout + layout &&
      std::equal(layout_.begin(), layout_.end(), memory_.const_data_ptr<int64_t>() + kLayout);
  if (fits) {
    return;
  }
  std::string own;
  for (const Part& part : parts_) {
    own +=
        c10::str(own.empty() ? "" : ", ", part.dtype, " ", c10::IntArrayRef(part.sizes).slice(1));
  }
  throw Error(c10::str("SampleBuffer: this one holds ", capacity_, " samples of (", own,
                       "); the snapshot's had another capacity, or samples with other sizes or "
                       "dtypes; resume with the buffer of the saved run"),
              ExitCode::snapshot);
}

int64_t SampleBuffer::count(int64_t place) const {
  require_layout();
  return memory_.const_data_ptr<int64_t>()[place];
}

/// A view of memory_.
at::Tensor SampleBuffer::samples(size_t part) const {
  const Part& whole = parts_[part];
  const int64_t end = part + 1 < parts_.size() ? parts_[part + 1].begin : memory_.numel();
  return memory_.slice(0, whole.begin, end)
      .view(whole.dtype)
      .narrow(0, 0, c10::multiply_integers(whole.sizes))
      .view(whole.sizes);
}

/// The place of the next sample; -1: it is dropped.
int64_t SampleBuffer::slot_of_next() {
  const int64_t number = memory_.mutable_data_ptr<int64_t>()[kPushed]++;
  if (number < capacity_ || options_.policy() != SamplePolicy::reservoir) {
    return number % capacity_;
  }
  const SampleSeeds seeds{seed_, kPushes};
  const int64_t place = below(seeds.of(static_cast<size_t>(number)), number + 1);
  return place < capacity_ ? place : -1;
}

void SampleBuffer::push(const std::vector<at::Tensor>& sample) {
  require_layout();
  LOCKSTEP_CHECK_CODE(sample.size() == parts_.size(), ExitCode::data, "SampleBuffer: a sample has ",
                      parts_.size(), " tensors, not ", sample.size());
  for (size_t i = 0; i < sample.size(); ++i) {
    const c10::IntArrayRef expected = c10::IntArrayRef(parts_[i].sizes).slice(1);
    const std::string why = sample[i].defined() ? detail::why_not_plain(sample[i]) : std::string();
    LOCKSTEP_CHECK_CODE(why.empty(), ExitCode::data, "SampleBuffer: part ", i, " of the sample ",
                        why);
    LOCKSTEP_CHECK_CODE(sample[i].defined() && sample[i].sizes() == expected &&
                            sample[i].scalar_type() == parts_[i].dtype,
                        ExitCode::data, "SampleBuffer: part ", i, " of the sample is ",
                        sample[i].toString(), " ", sample[i].sizes(), "; expected ",
                        parts_[i].dtype, " ", expected);
  }
  const int64_t slot = slot_of_next();
  for (size_t i = 0; i < sample.size() && slot >= 0; ++i) {
    samples(i).select(0, slot).copy_(sample[i].detach());
  }
}

/// Floyd's algorithm draws distinct samples with one random number each.
std::vector<int64_t> SampleBuffer::drawn() const {
  const SampleSeeds seeds{seed_, batches()};
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
  require_layout();
  LOCKSTEP_CHECK_CODE(ready(), ExitCode::data, "SampleBuffer: a batch needs ",
                      options_.policy() == SamplePolicy::replay ? 1 : options_.batch_size(),
                      " samples, the buffer has ", size(), "; push more, or ask ready() first");
  const at::Tensor picks = at::tensor(drawn(), at::kLong);
  ++memory_.mutable_data_ptr<int64_t>()[kBatches];
  std::vector<at::Tensor> parts;
  for (size_t i = 0; i < parts_.size(); ++i) {
    parts.push_back(samples(i).index_select(0, picks));
  }
  return parts;
}

void SampleBuffer::save_in(Trainer& trainer, const std::string& name) {
  trainer.state(name, memory_);
}

}  // namespace lockstep
