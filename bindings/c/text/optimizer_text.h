#pragma once

#include <lockstep/amp/optimizer.h>
#include <lockstep/bindings/c/text/option_text.h>

#include <memory>
#include <string>
#include <vector>

namespace lockstep::c {

/// Makes an optimizer. `options`: those with keys "optimizer.*".
/// `name`: the option "optimizer". Throws Error for an unknown name or key.
std::shared_ptr<const OptimizerSpec> make_optimizer(const OptionValue& name,
                                                    const std::vector<OptionValue>& options);

}  // namespace lockstep::c
