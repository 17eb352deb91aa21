#pragma once

#include <lockstep/checkpointing/activation/memory_meter.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/runtime.h>
#include <lockstep/runtime/table.h>

#include <algorithm>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "result_file.h"

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.at(values.size() / 2);
}

/// A training run of which single steps are measured.
struct MeasuredRun {
  std::string name;
  std::function<double()> step;  // makes an update and returns the loss
  int64_t peak = 0;              // bytes of activations
  std::vector<double> seconds = {};
  double loss = 0.0;

  void measure(c10::DeviceType device) {
    const Stopwatch watch;
    const lockstep::MemoryMeter meter(device);
    loss = step();
    peak = std::max(peak, meter.peak());
    seconds.push_back(watch.seconds());
  }
};

/// Prints a table of what a step costs without checkpointing, with all layers checkpointed, and
/// with a budget of 39 % of the first, and writes it as JSON. The runs take turns, step by step,
/// since the speed of a machine changes; medians count. `make(activations)` returns the step of a
/// new run that begins with equal weights and batches. Throws lockstep::Error if a loss differs.
inline void compare_activations(
    const lockstep::Runtime& runtime, const std::string& path,
    const std::function<std::function<double()>(const std::string&)>& make) {
  const c10::DeviceType device = runtime.device().type();
  std::vector<MeasuredRun> runs;
  for (const std::string name : {"plain", "checkpoint", "budget of 39 %"}) {
    const bool has_budget = name == "budget of 39 %";
    runs.push_back({name, make(has_budget ? std::to_string(runs[0].peak * 39 / 100) : name)});
    for (int i = 0; i < 3; ++i) {  // the planner measures in them
      runs.back().step();
    }
    runs.back().measure(device);
  }
  for (int round = 0; round < 7; ++round) {
    for (MeasuredRun& run : runs) {
      run.measure(device);
    }
  }
  ResultFile result(runtime, path);
  lockstep::Table table({"activations", "peak, MiB", "of plain", "step, s", "of plain", "loss"});
  const MeasuredRun& plain = runs[0];
  for (const MeasuredRun& run : runs) {
    std::vector<double> ratios;
    for (size_t i = 1; i < run.seconds.size(); ++i) {  // the first were not side by side
      ratios.push_back(run.seconds[i] / plain.seconds[i]);
    }
    const double mib = static_cast<double>(run.peak) / (1 << 20);
    const double memory = static_cast<double>(run.peak) / static_cast<double>(plain.peak);
    table.row({run.name, lockstep::format_number(mib), lockstep::format_number(memory),
               lockstep::format_number(median(run.seconds)),
               lockstep::format_number(median(ratios)), lockstep::format_number(run.loss)});
    result.add(run.name + ": peak, MiB", mib);
    result.add(run.name + ": step, s", median(run.seconds));
    result.add(run.name + ": step / plain", median(ratios));
    LOCKSTEP_CHECK(run.loss == plain.loss, run.name, ": the loss is ", run.loss, ", expected ",
                   plain.loss, " as with plain activations");
  }
  if (runtime.is_main()) {
    std::cout << table.text() << std::flush;
  }
  result.write();
}
