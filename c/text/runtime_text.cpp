#include <lockstep/c/text/option_text.h>
#include <lockstep/c/text/runtime_text.h>

#include <cmath>

namespace lockstep::c {
namespace {

std::chrono::milliseconds seconds(const OptionValue& value) {
  const double milliseconds = value.real() * 1e3;
  if (!(milliseconds >= 1.0 && milliseconds < 1e15)) {
    value.refuse("seconds, at least 0.001");
  }
  return std::chrono::milliseconds(std::llround(milliseconds));
}

const OptionTable<RuntimeOptions>& table() {
  static const OptionTable<RuntimeOptions> result = {
      {"seed", [](auto& options, const auto& value) { options.seed(value.natural()); }},
      {"timeout", [](auto& options, const auto& value) { options.timeout(seconds(value)); }},
      {"check_collectives",
       [](auto& options, const auto& value) { options.check_collectives(value.boolean()); }},
      {"threads",
       [](auto& options, const auto& value) {
         options.threads(static_cast<int>(std::min<uint64_t>(value.natural(), 1U << 20U)));
       }},
      {"device",
       [](auto& options, const auto& value) {
         options.device(value.template one_of<DeviceKind>({{"cpu", DeviceKind::cpu},
                                                           {"cuda", DeviceKind::cuda},
                                                           {"automatic", DeviceKind::automatic}}));
       }},
      {"share_device",
       [](auto& options, const auto& value) { options.share_device(value.boolean()); }},
      {"transport",
       [](auto& options, const auto& value) {
         options.transport(
             value.template one_of<DeviceTransport>({{"automatic", DeviceTransport::automatic},
                                                     {"nccl", DeviceTransport::nccl},
                                                     {"staged", DeviceTransport::staged}}));
       }},
      {"tf32", [](auto& options, const auto& value) { options.tf32(value.boolean()); }},
      {"cudnn_benchmark",
       [](auto& options, const auto& value) { options.cudnn_benchmark(value.boolean()); }},
      {"deterministic",
       [](auto& options, const auto& value) { options.deterministic(value.boolean()); }}};
  return result;
}

}  // namespace

RuntimeOptions runtime_options(const std::string& text) {
  RuntimeOptions options;
  set_options(read_options(text), table(), options, "a runtime");
  return options;
}

}  // namespace lockstep::c
