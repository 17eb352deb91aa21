#include <ATen/ops/zeros.h>
#include <lockstep/runtime/agreement.h>

#include <cstring>

namespace lockstep {
namespace {

/// The exit code in the first byte, then the text; empty for a rank that did not fail.
std::string encode(const std::optional<std::string>& message, ExitCode code) {
  return message.has_value() ? static_cast<char>(code) + *message : std::string();
}

[[noreturn]] void throw_gathered(const std::vector<std::string>& messages) {
  std::string text;
  auto code = ExitCode::usage;
  for (size_t rank = 0; rank < messages.size(); ++rank) {
    if (messages[rank].empty()) {
      continue;
    }
    if (text.empty()) {
      code = static_cast<ExitCode>(messages[rank][0]);
    }
    text += c10::str(text.empty() ? "" : "; ", "rank ", rank, ": ", messages[rank].substr(1));
  }
  throw Error(text.empty() ? "a rank failed without a message" : text, code);
}

}  // namespace

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
  throw_gathered(control_.all_gather_bytes(encode(message, code)));
}

void Agreement::raise(const std::exception_ptr& mine) {
  try {
    std::rethrow_exception(mine);
  } catch (const Error& error) {
    control_.all_gather_bytes(encode(error.what(), error.code()));
  } catch (const std::exception& error) {
    control_.all_gather_bytes(encode(error.what(), ExitCode::usage));
  } catch (...) {
    control_.all_gather_bytes(encode("an exception that is no std::exception", ExitCode::usage));
  }
  std::rethrow_exception(mine);
}

}  // namespace lockstep
