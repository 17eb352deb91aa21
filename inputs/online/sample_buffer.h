#pragma once

#include <ATen/core/Tensor.h>
#include <torch/arg.h>

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep {

class Runtime;
class Trainer;

/// Which samples a SampleBuffer keeps once it is full, and how it draws a batch.
enum class SamplePolicy {
  ring,       // keeps the newest samples; the samples of a batch are different ones
  reservoir,  // keeps a random subset of all samples pushed so far, each with the same
              // probability (Vitter's algorithm R); the samples of a batch are different ones
  replay,     // keeps the newest samples; each sample of a batch is drawn from all of them
};

struct SampleBufferOptions {
  TORCH_ARG(SamplePolicy, policy) = SamplePolicy::ring;
  /// Maximum number of samples. Requires: >= 1.
  TORCH_ARG(int64_t, capacity) = 1024;
  /// Maximum number of bytes of all samples; the smaller bound applies. Requires: at least the
  /// bytes of a sample. 0: no bound in bytes.
  TORCH_ARG(int64_t, capacity_bytes) = 0;
  /// Samples per batch. Requires: from 1 to the capacity; for SamplePolicy::replay >= 1.
  TORCH_ARG(int64_t, batch_size) = 1;
};

/// A bounded set of samples in memory, which a running simulation fills: training while the
/// simulation runs, without files.
///
///   lockstep::SampleBuffer buffer(runtime, {field, next}, lockstep::SampleBufferOptions()
///       .capacity(512).batch_size(16));
///   buffer.save_in(trainer, "samples");
///   for (...) {
///     buffer.push({field, next});
///     trainer.step(trainer.to_device(buffer.batch()), [&](const std::vector<at::Tensor>& batch) {
///       return at::mse_loss(model->forward(batch[0]), batch[1]);
///     });
///   }
///
/// Draw a batch before step(), not in its closure: a diagnosis runs the closure again, and every
/// call of batch() draws another batch.
/// Each rank has its own samples. A sample is a list of tensors; the constructor fixes their
/// number, sizes and dtypes. Memory for all samples is allocated there, on the host. Batches are
/// deterministic: which samples are kept and drawn depends on the seed of the Runtime, the rank,
/// and the numbers of pushes and batches so far. The random numbers are those of SampleSeeds;
/// LibTorch's generators do not advance.
/// Snapshots: after save_in() the samples and counts are part of the Trainer's snapshots, so a
/// resumed run draws the same batches. They are one variable of Trainer::state(), restored as a
/// whole or not at all. On another number of ranks they are restored, on all ranks, if the buffers
/// of all saved ranks had the same samples and counts, as that of a single rank has. Otherwise the
/// buffer stays as it is, and ResumeReport says so.
/// Ranks: local. Threads: one at a time.
class SampleBuffer {
 public:
  /// `like`: one tensor for each part of a sample, with its sizes and dtype. Throws Error that
  /// names the option with a value out of range.
  SampleBuffer(const Runtime& runtime, const std::vector<at::Tensor>& like,
               const SampleBufferOptions& options = {});
  SampleBuffer(const SampleBuffer&) = delete;
  SampleBuffer& operator=(const SampleBuffer&) = delete;

  /// Adds a copy of a sample. A full buffer drops a sample as the policy says, possibly this one.
  /// Throws Error (exit code data) for another number of tensors, other sizes or another dtype.
  void push(const std::vector<at::Tensor>& sample);
  /// True if batch() has enough samples: batch_size, or one for SamplePolicy::replay.
  bool ready() const;
  /// Draws a batch: for each part of a sample a tensor with a first dimension of batch_size. The
  /// tensors are new, on the host. Throws Error (exit code data) unless ready().
  std::vector<at::Tensor> batch();

  int64_t size() const;  // samples that are kept
  int64_t capacity() const { return capacity_; }
  int64_t pushed() const;   // calls of push() so far
  int64_t batches() const;  // calls of batch() so far

  /// Makes samples and counts part of the snapshots of `trainer`, under `name`. Call it before or
  /// after resume(). The buffer must live as long as the Trainer. If the snapshot's buffer had
  /// another capacity, or samples with other sizes or dtypes, the next call of the buffer throws
  /// Error (exit code snapshot).
  void save_in(Trainer& trainer, const std::string& name);

 private:
  /// All samples of one part of a sample.
  struct Part {
    std::vector<int64_t> sizes;  // with the capacity in front
    at::ScalarType dtype;
    int64_t begin;  // in memory_
  };
  void require_layout() const;
  int64_t count(int64_t place) const;
  at::Tensor samples(size_t part) const;
  int64_t slot_of_next();
  std::vector<int64_t> drawn() const;

  SampleBufferOptions options_;
  uint64_t seed_;
  int64_t capacity_;
  std::vector<Part> parts_;
  std::vector<int64_t> layout_;
  /// The counts, the layout and the samples of each part, so that a snapshot restores all or none.
  at::Tensor memory_;
};

}  // namespace lockstep
