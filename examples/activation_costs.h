#pragma once

#include <lockstep/checkpointing/activation/memory_meter.h>
#include <lockstep/runtime/runtime.h>
#include <lockstep/runtime/table.h>

#include <functional>
#include <iostream>
#include <string>

#include "result_file.h"

/// What one training step costs.
struct StepCost {
  int64_t peak = 0;  // bytes of activations
  double seconds = 1e9;
  double loss = 0.0;

  /// Runs the steps of a trainer, `count` of which are measured. Three come first: the planner
  /// measures in them.
  static StepCost of(c10::DeviceType device, int count, const std::function<double()>& step) {
    StepCost cost;
    for (int i = 0; i < 3 + count; ++i) {
      const Stopwatch watch;
      const lockstep::MemoryMeter meter(device);
      cost.loss = step();
      if (i >= 3) {
        cost.peak = std::max(cost.peak, meter.peak());
        cost.seconds = std::min(cost.seconds, watch.seconds());
      }
    }
    return cost;
  }
};

/// Prints a table of the costs without checkpointing, with all layers checkpointed, and with a
/// budget of 40 % of the first, and writes it as JSON. `measure(activations)` trains from equal
/// weights on equal batches. Throws lockstep::Error if a loss differs.
inline void compare_activations(const lockstep::Runtime& runtime, const std::string& path,
                                const std::function<StepCost(const std::string&)>& measure) {
  ResultFile result(runtime, path);
  lockstep::Table table({"activations", "peak, MiB", "of plain", "step, s", "of plain", "loss"});
  StepCost plain;
  for (const std::string name : {"plain", "checkpoint", "budget of 40 %"}) {
    const StepCost cost =
        measure(name == "budget of 40 %" ? std::to_string(plain.peak * 2 / 5) : name);
    plain = name == "plain" ? cost : plain;
    const double mib = static_cast<double>(cost.peak) / (1 << 20);
    const double memory = static_cast<double>(cost.peak) / static_cast<double>(plain.peak);
    const double time = cost.seconds / plain.seconds;
    table.row({name, lockstep::format_number(mib), lockstep::format_number(memory),
               lockstep::format_number(cost.seconds), lockstep::format_number(time),
               lockstep::format_number(cost.loss)});
    result.add(name + ": peak, MiB", mib);
    result.add(name + ": step, s", cost.seconds);
    LOCKSTEP_CHECK(cost.loss == plain.loss, name, ": the loss is ", cost.loss, ", expected ",
                   plain.loss, " as with plain activations");
  }
  if (runtime.is_main()) {
    std::cout << table.text() << std::flush;
  }
  result.write();
}
