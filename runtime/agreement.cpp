#include <ATen/ops/zeros.h>
#include <lockstep/collectives/shared_error.h>
#include <lockstep/runtime/agreement.h>

#include <cstring>

namespace lockstep {

Word Agreement::exchange(const Word& mine) {
  constexpr auto fields = static_cast<int64_t>(sizeof(Word) / sizeof(double));
  const at::Tensor buffer = at::zeros({fields}, at::kDouble);
  std::memcpy(buffer.mutable_data_ptr<double>(), &mine, sizeof(Word));
  control_.all_reduce(buffer).wait();
  Word sum;
  std::memcpy(static_cast<void*>(&sum), buffer.const_data_ptr<double>(), sizeof(Word));
  // All equal if and only if the variance is zero; every rank comes to the same verdict.
  const bool in_step = sum.update * sum.update == sum.update_squared * control_.size();
  if (!in_step && sum.error == 0) {
    raise(c10::str(
        "is at update ", static_cast<int64_t>(mine.update),
        " while others are not: ranks made different numbers of calls to step() or update()"));
  }
  return sum;
}

void Agreement::raise_if_any(const std::optional<std::string>& message, ExitCode code) {
  const at::Tensor failed = at::zeros({1}, at::kInt);
  failed.mutable_data_ptr<int32_t>()[0] = message.has_value() ? 1 : 0;
  control_.all_reduce(failed).wait();
  if (failed.const_data_ptr<int32_t>()[0] != 0) {
    raise(message, code);
  }
}

void Agreement::attempt(const std::function<void()>& body) {
  std::optional<std::string> problem;
  auto code = ExitCode::usage;
  try {
    body();
  } catch (const Error& error) {
    problem = error.what();
    code = error.code();
  } catch (const std::exception& error) {
    problem = error.what();
  }
  raise_if_any(problem, code);
}

void Agreement::raise(const std::optional<std::string>& message, ExitCode code) {
  throw_on_every_rank(control_, message, code);
}

void Agreement::raise(const std::exception_ptr& mine) {
  try {
    std::rethrow_exception(mine);
  } catch (const Error& error) {
    tell_every_rank(control_, error.what(), error.code());
  } catch (const std::exception& error) {
    tell_every_rank(control_, error.what(), ExitCode::usage);
  } catch (...) {
    tell_every_rank(control_, "an exception that is no std::exception", ExitCode::usage);
  }
  std::rethrow_exception(mine);
}

}  // namespace lockstep
