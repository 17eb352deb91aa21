#include <lockstep/c/text/buffer_text.h>
#include <lockstep/c/text/option_text.h>

namespace lockstep::c {
namespace {

const OptionTable<SampleBufferOptions>& table() {
  static const OptionTable<SampleBufferOptions> result = {
      {"policy",
       [](auto& options, const auto& value) {
         options.policy(value.template one_of<SamplePolicy>({{"ring", SamplePolicy::ring},
                                                             {"reservoir", SamplePolicy::reservoir},
                                                             {"replay", SamplePolicy::replay}}));
       }},
      {"capacity", [](auto& options, const auto& value) { options.capacity(value.integer()); }},
      {"capacity_bytes",
       [](auto& options, const auto& value) { options.capacity_bytes(value.integer()); }},
      {"batch_size",
       [](auto& options, const auto& value) { options.batch_size(value.integer()); }}};
  return result;
}

}  // namespace

SampleBufferOptions buffer_options(const std::string& text) {
  SampleBufferOptions options;
  set_options(read_options(text), table(), options, "a buffer");
  return options;
}

}  // namespace lockstep::c
