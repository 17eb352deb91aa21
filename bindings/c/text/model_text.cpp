#include <lockstep/bindings/c/text/model_text.h>
#include <lockstep/bindings/c/text/option_text.h>

namespace lockstep::detail {

LOCKSTEP_OPTION_LIST(ExportedModuleOptions) {
  visit("operators", options.operators());
  visit("without_no_grad", options.without_no_grad());
}

}  // namespace lockstep::detail

lockstep::ExportedModuleOptions lockstep::c::model_options(const std::string& text) {
  ExportedModuleOptions options;
  set_options(read_options(text), options, "a model");
  return options;
}
