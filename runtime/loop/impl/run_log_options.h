#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/impl/option_list.h>
#include <lockstep/runtime/run_log.h>

namespace lockstep::detail {

LOCKSTEP_OPTION_LIST(RunLogOptions) {
  visit("log_every", options.log_every(), ">= 1");
  visit("samples_per_update", options.samples_per_update(), ">= 0");
  visit("every_rank", options.every_rank());
  visit("mfu", options.mfu());
  visit("flops_per_update", options.flops_per_update(), ">= 0");
  visit("peak_flops", options.peak_flops(), ">= 0");
  visit("layers", options.layers());
  visit("tensorboard", options.tensorboard());
  visit("jsonl", options.jsonl());
  visit("csv", options.csv());
}

}  // namespace lockstep::detail
