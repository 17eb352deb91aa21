#include <lockstep/bindings/c/text/option_text.h>
#include <lockstep/bindings/c/text/runtime_text.h>
#include <lockstep/runtime/process/impl/environment.h>

#include <algorithm>
#include <chrono>
#include <cmath>

namespace lockstep {

namespace detail {

LOCKSTEP_OPTION_LIST(RuntimeOptions) {
  visit("seed", options.seed());
  visit("timeout", options.timeout());
  visit("check_collectives", options.check_collectives());
  visit("threads", options.threads());
  visit("device", options.device());
  visit("share_device", options.share_device());
  visit("transport", options.transport());
  visit("tf32", options.tf32());
  visit("cudnn_benchmark", options.cudnn_benchmark());
  visit("deterministic", options.deterministic());
}

}  // namespace detail

namespace c {

static void read(std::chrono::milliseconds& option, const OptionValue& value) {
  const double milliseconds = value.real() * 1e3;
  if (!(milliseconds >= 1.0 && milliseconds < 1e15)) {
    value.refuse("seconds, at least 0.001");
  }
  option = std::chrono::milliseconds(std::llround(milliseconds));
}
static void read(int& option, const OptionValue& value) {
  option = static_cast<int>(std::min<uint64_t>(value.natural(), 1U << 20U));
}

RuntimeOptions runtime_options(const std::string& text) {
  RuntimeOptions options;
  set_options(read_options(text), options, "a runtime");
  return options;
}

}  // namespace c
}  // namespace lockstep
