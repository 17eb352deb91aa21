#pragma once

#include <lockstep/amp/loss_scaler_options.h>
#include <lockstep/bindings/c/text/option_text.h>
#include <lockstep/runtime/data_parallel.h>

#include <string>

namespace lockstep::c {

/// A preset ("apex") or a fixed scale ("1024").
amp::LossScalerOptions scaler_policy(const OptionValue& value);

/// The options of the pieces for loops of the program's own. Both throw Error as set_options().
amp::LossScalerOptions scaler_options(const std::string& text);
DataParallelOptions data_parallel_options(const std::string& text);

}  // namespace lockstep::c
