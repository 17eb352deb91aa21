#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "batch.h"

namespace fake_cuda {

/// What a thread has called since ncclGroupStart().
class Group {
 public:
  /// Of the current thread.
  static Group& get();

  bool is_open() const { return depth_ > 0; }
  void start() { ++depth_; }
  /// Enqueues the calls and waits for communicators that are being made.
  ncclResult_t end();

  using Call = std::variant<Collective, Transfer>;
  /// A call that was checked: at once, or when the group ends.
  ncclResult_t add(const Comm& comm, cudaStream_t stream, const std::string& name,
                   const Call& call);
  /// A communicator whose making runs on a thread.
  void add_job(const Comm& comm) { jobs_.push_back(comm); }
  /// A call was refused: the whole group is.
  void fail(ncclResult_t error);

 private:
  struct Part {
    Comm comm;
    cudaStream_t stream;
    std::string name;
    Batch batch;
  };
  Part& part(const Comm& comm, cudaStream_t stream, const std::string& name);

  int depth_ = 0;
  ncclResult_t error_ = ncclSuccess;
  std::vector<Part> parts_;
  std::vector<Comm> jobs_;
};

}  // namespace fake_cuda
