#include <ATen/ops/zeros.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/as_error.h>
#include <lockstep/collectives/nccl/capture_agreement.h>

namespace lockstep::detail {

CaptureAgreement::CaptureAgreement(Communicator host) : host_(std::move(host)) {
  post(State::capturing);
}

void CaptureAgreement::post(State state) {
  count_ = at::zeros({2}, at::kLong);
  int64_t* count = count_.mutable_data_ptr<int64_t>();
  count[0] = state == State::capturing ? 1 : 0;
  count[1] = state == State::failed ? 1 : 0;
  round_ = host_.communicator().all_reduce(count_);
}

void CaptureAgreement::read_round() {
  const int64_t* count = count_.const_data_ptr<int64_t>();
  all_done_ = count[0] + count[1] == 0;
  one_failed_ = count[1] > 0;
}

void CaptureAgreement::poll() {
  if (!one_failed_ && round_.test()) {
    read_round();
    if (!one_failed_) {
      post(State::capturing);
    }
  }
  if (one_failed_) {
    saw_failure_ = true;
    throw CommunicationError("another rank failed during this graph capture");
  }
}

void CaptureAgreement::finish(const std::exception_ptr& error) {
  while (!one_failed_) {
    round_.wait();
    read_round();
    if (all_done_) {
      return;
    }
    if (!one_failed_) {
      post(error != nullptr ? State::failed : State::done);
    }
  }
  if (error == nullptr || saw_failure_) {
    host_.raise(std::nullopt);
  }
  const Error mine = as_error(error);
  host_.raise(Error(c10::str(mine.what(),
                             "; the NCCL communicator ended with this capture: restart from the "
                             "last snapshot"),
                    mine.code()));
}

}  // namespace lockstep::detail
