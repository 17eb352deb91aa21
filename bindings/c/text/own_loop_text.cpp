#include <lockstep/amp/impl/precision_options.h>
#include <lockstep/bindings/c/text/own_loop_text.h>
#include <lockstep/collectives/exceptions.h>

#include <vector>

namespace lockstep::c {

amp::LossScalerOptions scaler_policy(const OptionValue& value) {
  using Options = amp::LossScalerOptions;
  double number = 0.0;
  try {
    number = value.real();
  } catch (const Error&) {
    return value.one_of<Options>({{"torch", Options::torch()},
                                  {"apex", Options::apex()},
                                  {"deepspeed", Options::deepspeed()},
                                  {"megatron", Options::megatron()},
                                  {"disabled", Options::disabled()}});
  }
  return Options::fixed(number);
}

amp::LossScalerOptions scaler_options(const std::string& text) {
  amp::LossScalerOptions options;
  std::vector<OptionValue> others;
  for (const OptionValue& value : read_options(text)) {
    if (value.key() == "policy") {
      options = scaler_policy(value);
    } else {
      others.push_back(value);
    }
  }
  set_options(others, options, "a loss scaler", nullptr, {"policy"});
  return options;
}

DataParallelOptions data_parallel_options(const std::string& text) {
  DataParallelOptions options;
  for (const OptionValue& value : read_options(text)) {
    if (value.key() == "wire") {
      options.wire(floating_dtype(value));
    } else if (value.key() == "reduce") {
      options.reduce(value.one_of<ReduceOp>({{"avg", ReduceOp::avg()}, {"sum", ReduceOp::sum()}}));
    } else {
      refuse_key(value.key(), "data parallelism", {"wire", "reduce"});
    }
  }
  return options;
}

}  // namespace lockstep::c
