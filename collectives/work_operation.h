#pragma once

#include <lockstep/collectives/work.h>

#include <memory>
#include <utility>

namespace lockstep {

/// The operation of a transport that hands a call on to another communicator.
inline std::shared_ptr<Operation> operation_of(Work work) {
  class Forwarded final : public Operation {
   public:
    explicit Forwarded(Work work) : work_(std::move(work)) {}
    bool test() override { return work_.test(); }
    void wait() override { work_.wait(); }

   private:
    Work work_;
  };
  return std::make_shared<Forwarded>(std::move(work));
}

}  // namespace lockstep
