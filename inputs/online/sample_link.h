#pragma once

#include <ATen/core/Tensor.h>
#include <lockstep/collectives/mpi_comm_handle.h>
#include <torch/arg.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace lockstep {

class SampleBuffer;

struct SampleLinkOptions {
  /// How many samples a simulating rank may have sent that no training rank has taken yet.
  /// Requires: >= 1.
  TORCH_ARG(int64_t, in_flight) = 4;
};

/// Sends samples from ranks that simulate to ranks that train.
///
///   lockstep::SampleLink link(MPI_COMM_WORLD, trains, {field, next});
///   if (trains) {                               // the other ranks call link.send({field, next})
///     while (link.receive(buffer, 8) > 0) {     // and, at their end, link.finish()
///       if (buffer.ready()) { trainer.step(...); }    // of this rank alone: see Ranks
///     }
///   }
///
/// Simulating rank i (of those that simulate, in the order of their ranks) sends its k-th sample to
/// training rank (i + k) modulo their number. A training rank takes the samples in the order of k,
/// then i. So which samples a training rank gets, and in which order, does not depend on timing.
/// Back-pressure: sending copies the sample and returns; the message goes when a training rank asks
/// for it. With `in_flight` samples that wait, send() waits until the first of them was taken, and
/// try_send() returns false. So the memory of a link is bounded: in_flight samples on each
/// simulating rank, one on each training rank. A training rank that ends its training early keeps
/// receiving until receive() returns 0; otherwise the simulating ranks wait for it.
/// Snapshots hold nothing of a link. A program that resumes makes a new link, and its simulation
/// continues with the sample that follows the trained ones.
/// Ranks: every rank of `comm` constructs one, with the same options and tensors that have the same
/// sizes and dtypes; messages go over a duplicate of `comm`. Between two calls of receive() a
/// training rank must not wait for another training rank, as a step of several ranks does: both may
/// wait for samples that the other's samples hold back, and they may get different numbers of
/// samples. Training ranks that train together need simulating ranks that send equally many
/// samples, a multiple of the number of training ranks times `count`. Threads: one at a time, of
/// those that MPI's thread level allows. Errors: Error for misuse, on the rank that calls;
/// CommunicationError if MPI reports a failure. MPI itself knows no deadline: a rank that waits for
/// a lost peer waits until the launcher ends it.
class SampleLink {
 public:
  /// `trains`: true on the ranks that receive. `like`: as for SampleBuffer. Collective. Throws
  /// Error on every rank unless at least one rank simulates and at least one trains, and if the
  /// samples of the ranks have different sizes in bytes.
  SampleLink(MpiCommHandle comm, bool trains, const std::vector<at::Tensor>& like,
             const SampleLinkOptions& options = {});
  /// A simulating rank calls finish() before; otherwise samples that wait are lost, and their
  /// memory is not freed.
  ~SampleLink();
  SampleLink(const SampleLink&) = delete;
  SampleLink& operator=(const SampleLink&) = delete;

  /// On a simulating rank: sends a copy of a sample. Throws Error (exit code data) for a sample
  /// unlike the constructor's, and Error after finish().
  void send(const std::vector<at::Tensor>& sample);
  /// The same; returns false, and sends nothing, where send() would wait.
  bool try_send(const std::vector<at::Tensor>& sample);
  /// On a simulating rank: how many samples wait.
  int64_t waiting();
  /// On a simulating rank: waits until all samples were taken, and tells the training ranks that no
  /// more follow.
  void finish();

  /// On a training rank: waits for the next `count` samples and pushes them to `buffer`. Returns
  /// how many there were: fewer than `count` only if all simulating ranks have finished.
  int64_t receive(SampleBuffer& buffer, int64_t count);
  /// The same without waiting: the samples, at most `count`, that have arrived, in the same order.
  int64_t receive_arrived(SampleBuffer& buffer, int64_t count);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep
