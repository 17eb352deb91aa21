#pragma once

#include <memory>

namespace lockstep {

/// One in-flight operation of a transport.
class Operation {
 public:
  virtual ~Operation() = default;
  /// Advances this operation, and those issued before it, without blocking. True once it is
  /// complete.
  virtual bool test() = 0;
  /// Blocks until the operation is complete. Throws the error of the collective, if it failed.
  virtual void wait() = 0;
};

/// A handle on a collective that may still be in flight.
///
/// Progress: host collectives advance inside `test()`, `wait()` and any other call on the same
/// Communicator (`Communicator::progress()` does nothing else). They have no thread of their own,
/// so they take no core from the computation. Dropping a Work does not cancel the collective: its
/// tensors are kept alive, and every rank must still let it complete.
/// Threads: use a Work from one thread at a time, like its Communicator.
class [[nodiscard]] Work {
 public:
  Work() = default;  // already complete
  explicit Work(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}

  /// True once the result may be read. Throws like wait().
  bool test() { return operation_ == nullptr || operation_->test(); }
  /// Blocks until the result may be read. Throws Error if the ranks made different calls,
  /// CommunicationError if a rank died or did not arrive within the timeout of the communicator.
  void wait() {
    if (operation_ != nullptr) {
      operation_->wait();
    }
  }

 private:
  std::shared_ptr<Operation> operation_;
};

}  // namespace lockstep
