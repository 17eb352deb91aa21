#include <ATen/ops/zeros.h>
#include <lockstep/collectives/as_error.h>
#include <lockstep/collectives/nccl/joint_record.h>
#include <lockstep/collectives/shared_error.h>

namespace lockstep {

JointRecord::JointRecord(Communicator host) : host_(std::move(host)) {
  post(State::recording);
}

void JointRecord::post(State state) {
  count_ = at::zeros({2}, at::kLong);
  int64_t* count = count_.mutable_data_ptr<int64_t>();
  count[0] = state == State::recording ? 1 : 0;
  count[1] = state == State::failed ? 1 : 0;
  round_ = host_.all_reduce(count_);
}

void JointRecord::read_round() {
  const int64_t* count = count_.const_data_ptr<int64_t>();
  all_done_ = count[0] + count[1] == 0;
  one_failed_ = count[1] > 0;
}

void JointRecord::look() {
  if (!one_failed_ && round_.test()) {
    read_round();
    if (!one_failed_) {
      post(State::recording);
    }
  }
  if (one_failed_) {
    told_ = true;
    throw CommunicationError("another rank failed while this one recorded");
  }
}

void JointRecord::finish(const std::exception_ptr& error) {
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
  if (error == nullptr || told_) {
    throw_on_every_rank(host_, std::nullopt);
  }
  const Error mine = as_error(error);
  throw_on_every_rank(host_,
                      c10::str(mine.what(),
                               "; NCCL has ended with that record: restart from the "
                               "last snapshot"),
                      mine.code());
}

}  // namespace lockstep
