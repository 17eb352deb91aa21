#include <ATen/ops/zeros.h>
#include <lockstep/collectives/as_error.h>
#include <lockstep/collectives/shared_error.h>
#include <lockstep/runtime/agreement.h>

#include <cstring>

namespace lockstep {

Word Agreement::exchange(const Word& mine) {
  post(mine);
  return collect();
}

void Agreement::post(const Word& mine) {
  constexpr auto fields = static_cast<int64_t>(sizeof(Word) / sizeof(double));
  posted_ = at::zeros({fields}, at::kDouble);
  std::memcpy(posted_.mutable_data_ptr<double>(), &mine, sizeof(Word));
  posted_update_ = mine.update;
  on_its_way_ = control_.all_reduce(posted_);
}

Word Agreement::collect() {
  on_its_way_.wait();
  Word sum;
  std::memcpy(static_cast<void*>(&sum), posted_.const_data_ptr<double>(), sizeof(Word));
  // All equal if and only if the variance is zero; every rank comes to the same verdict.
  const bool in_step = sum.update * sum.update == sum.update_squared * control_.size();
  if (!in_step && sum.error == 0) {
    raise(Error(c10::str(
        "is at update ", static_cast<int64_t>(posted_update_),
        " while others are not: ranks made different numbers of calls to step() or update()")));
  }
  return sum;
}

bool Agreement::any(bool mine) {
  const at::Tensor count = at::zeros({1}, at::kInt);
  count.mutable_data_ptr<int32_t>()[0] = mine ? 1 : 0;
  control_.all_reduce(count).wait();
  return count.const_data_ptr<int32_t>()[0] != 0;
}

void Agreement::raise_if_any(const std::optional<Error>& mine) {
  if (any(mine.has_value())) {
    raise(mine);
  }
}

void Agreement::attempt(const std::function<void()>& body) {
  std::optional<Error> problem;
  try {
    body();
  } catch (...) {
    problem = as_error(std::current_exception());
  }
  raise_if_any(problem);
}

void Agreement::raise(const std::optional<Error>& mine) {
  if (mine.has_value()) {
    throw_on_every_rank(control_, mine->what(), mine->code());
  }
  throw_on_every_rank(control_, std::nullopt);
}

void Agreement::raise(const Error& mine, const std::exception_ptr& cause) {
  throw_on_every_rank(control_, mine, cause);
}

}  // namespace lockstep
