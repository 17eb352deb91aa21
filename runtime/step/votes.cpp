#include <ATen/ops/zeros.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/step/impl/votes.h>

#include <cstring>

namespace lockstep::detail {

PostedVotes::PostedVotes(const Agreement& agreement, const Votes& mine)
    : agreement_(agreement), window_(mine.window) {
  constexpr auto fields = static_cast<int64_t>(sizeof(Votes) / sizeof(double));
  sum_ = at::zeros({fields}, at::kDouble);
  std::memcpy(sum_.mutable_data_ptr<double>(), &mine, sizeof(Votes));
  work_ = agreement_.communicator().all_reduce(sum_);
}

Votes PostedVotes::collect() {
  work_.wait();
  Votes sum;
  std::memcpy(static_cast<void*>(&sum), sum_.const_data_ptr<double>(), sizeof(Votes));
  // All equal if and only if the variance is zero; every rank comes to the same verdict.
  const bool in_step =
      sum.window * sum.window == sum.window_squared * agreement_.communicator().size();
  if (!in_step && sum.error == 0) {
    agreement_.raise(Error(c10::str(
        "is at window ", static_cast<int64_t>(window_),
        " while others are not: ranks made different numbers of calls to step() or update()")));
  }
  return sum;
}

Votes exchange(const Agreement& agreement, const Votes& mine) {
  return PostedVotes(agreement, mine).collect();
}

}  // namespace lockstep::detail
