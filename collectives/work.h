#pragma once

#include <memory>

namespace lockstep {

/// One operation in flight, as a transport sees it.
class Operation {
 public:
  virtual ~Operation() = default;
  /// Moves this operation (and those before it) on without blocking; true once it is complete.
  virtual bool test() = 0;
  /// Blocks until complete. Throws what the collective ended with.
  virtual void wait() = 0;
};

/// A handle on a collective that may still be running.
///
/// Progress: host collectives move on inside `test()`, `wait()` and any other call on the same
/// Communicator (`Communicator::progress()` does only that), never on a thread of their own, so
/// no core is taken from the computation. Dropping a Work does not cancel it: the tensors are
/// kept alive, and every rank must still let it complete.
/// Threads: use a Work from one thread at a time, as its Communicator.
class Work {
 public:
  Work() = default;  // already complete
  explicit Work(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}

  /// True once the result may be read. Throws like wait().
  bool test() { return operation_ == nullptr || operation_->test(); }
  /// Returns once the result may be read. Throws Error when the ranks called different things,
  /// CommunicationError when a rank died or did not arrive within the communicator's timeout.
  void wait() {
    if (operation_ != nullptr) {
      operation_->wait();
    }
  }

 private:
  std::shared_ptr<Operation> operation_;
};

}  // namespace lockstep
