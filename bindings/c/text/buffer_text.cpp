#include <lockstep/bindings/c/text/buffer_text.h>
#include <lockstep/bindings/c/text/option_text.h>

namespace lockstep::detail {

LOCKSTEP_OPTION_NAMES(SamplePolicy, "ring", "reservoir", "replay");

LOCKSTEP_OPTION_LIST(SampleBufferOptions) {
  visit("policy", options.policy());
  visit("capacity", options.capacity());
  visit("capacity_bytes", options.capacity_bytes());
  visit("batch_size", options.batch_size());
}

}  // namespace lockstep::detail

lockstep::SampleBufferOptions lockstep::c::buffer_options(const std::string& text) {
  SampleBufferOptions options;
  set_options(read_options(text), options, "a buffer");
  return options;
}
