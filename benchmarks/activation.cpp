// activation CHAIN plans PERCENT   one step of a chain: plain, the planner's plan for that part of
//                                  the plain peak, and the fastest uniform plan that fits there too
// activation CHAIN uniform N...    steps of the uniform plans of N segments
// activation CHAIN curve           steps of all uniform plans, and of the planner's for ten budgets
// activation regions               a tiny and a costly region, checkpointed, plain and forward only
// activation solver                the planner on 100 stages and 500 slots
// Freed memory stays with the process, as Runtime sees to.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <lockstep/checkpointing/activation/checkpoint.h>
#include <lockstep/checkpointing/activation/memory_meter.h>
#include <lockstep/checkpointing/activation/plan_checkpoints.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/process/impl/host_threads.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "chains.h"
#include "recorder.h"

namespace lockstep::benchmarks {
namespace {

constexpr int repetitions = 5;

struct Variant {
  std::string name;
  CheckpointPlan plan;
  int64_t predicted;
  int64_t budget;  // 0: none was set
};

void step(const ChainWorkload& workload, const CheckpointPlan& plan) {
  const at::Tensor loss = plan.run(workload.chain, workload.input).square().mean();
  loss.backward();
}

struct Peaks {
  int64_t step;
  int64_t chain;  // without the loss, as plans predict it
};

Peaks peaks_of(const ChainWorkload& workload, const CheckpointPlan& plan) {
  MemoryMeter meter;
  at::Tensor y = plan.run(workload.chain, workload.input);
  const int64_t forward = meter.peak();
  int64_t loss_peak = 0;
  y.register_hook([&](const at::Tensor&) {
    loss_peak = meter.peak();
    meter.reset_peak();
  });
  const at::Tensor loss = y.square().mean();
  y.reset();
  loss.backward();
  const int64_t chain = std::max(forward, meter.peak());
  return {std::max(chain, loss_peak), chain};
}

/// One step of each in turn, so that all see the same machine.
void measure(const std::string& name, const ChainWorkload& workload,
             const std::vector<Variant>& variants) {
  std::vector<Series> series;
  for (const Variant& variant : variants) {
    series.emplace_back(name, variant.name);
    step(workload, variant.plan);  // gradients and caches are there afterwards
    const Peaks peaks = peaks_of(workload, variant.plan);
    series.back().note("peak", peaks.step);
    series.back().note("chain peak", peaks.chain);
    series.back().note("predicted", variant.predicted);
    series.back().note("budget", variant.budget);
  }
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    for (std::size_t i = 0; i < variants.size(); ++i) {
      series[i].begin();
      step(workload, variants[i].plan);
      series[i].end();
    }
  }
  for (const Series& one : series) {
    one.write();
  }
}

Variant variant(const std::string& name, const CheckpointPlan& plan, const ChainCosts& costs,
                int64_t budget = 0) {
  return {name, plan, plan.predict(costs).peak_bytes, budget};
}

Variant uniform_variant(int64_t segments, const ChainCosts& costs) {
  return variant("segments " + std::to_string(segments),
                 CheckpointPlan::uniform(static_cast<int64_t>(costs.size()), segments), costs);
}

/// The fastest division into equal segments that keeps within the budget.
CheckpointPlan best_uniform(const ChainCosts& costs, int64_t budget) {
  const auto stages = static_cast<int64_t>(costs.size());
  std::optional<CheckpointPlan> best;
  for (int64_t segments = 1; segments <= stages; ++segments) {
    const CheckpointPlan plan = CheckpointPlan::uniform(stages, segments);
    const PlanCosts predicted = plan.predict(costs);
    if (predicted.peak_bytes <= budget &&
        (!best || predicted.seconds < best->predict(costs).seconds)) {
      best = plan;
    }
  }
  LOCKSTEP_CHECK(best.has_value(), "no uniform plan fits into ", budget, " bytes");
  return *best;
}

void plans(const std::string& name, double percent) {
  const ChainWorkload workload = make_chain(name);
  const ChainCosts costs = profile_chain(workload.chain, workload.input);
  const auto plain = CheckpointPlan::uniform(static_cast<int64_t>(costs.size()), 1);
  const auto budget =
      static_cast<int64_t>(percent / 100 * static_cast<double>(plain.predict(costs).peak_bytes));
  const CheckpointPlan uniform = best_uniform(costs, budget);
  const CheckpointPlan planned = plan_checkpoints(costs, budget);
  std::cerr << name << ": planned " << planned.text() << "; uniform " << uniform.text() << "\n";
  measure(name, workload,
          {variant("plain", plain, costs), variant("planner", planned, costs, budget),
           variant("uniform", uniform, costs, budget)});
}

void uniform(const std::string& name, const std::vector<std::string>& segments) {
  const ChainWorkload workload = make_chain(name);
  const ChainCosts costs = profile_chain(workload.chain, workload.input);
  std::vector<Variant> variants;
  for (const std::string& count : segments) {
    variants.push_back(uniform_variant(std::stoll(count), costs));
  }
  measure(name, workload, variants);
}

void curve(const std::string& name) {
  const ChainWorkload workload = make_chain(name);
  const ChainCosts costs = profile_chain(workload.chain, workload.input);
  const auto stages = static_cast<int64_t>(costs.size());
  std::vector<Variant> variants;
  for (int64_t segments = 1; segments <= stages; ++segments) {
    variants.push_back(uniform_variant(segments, costs));
  }
  const int64_t least = least_activation_bytes(costs);
  const int64_t most = variants.front().predicted;
  for (int64_t tenth = 1; tenth <= 10; ++tenth) {
    const int64_t budget = least + (most - least) * tenth / 10;
    variants.push_back(
        variant("budget " + std::to_string(tenth), plan_checkpoints(costs, budget), costs, budget));
  }
  measure(name, workload, variants);
}

using Bodies = std::vector<std::pair<std::string, std::function<void()>>>;

/// `calls` calls of each body in turn, so that all see the same machine.
void record(const std::string& name, const Bodies& bodies, int calls, int repetitions) {
  std::vector<Series> series;
  for (const auto& [variant, body] : bodies) {
    series.emplace_back(name, variant);
    series.back().note("calls", calls);
    body();
  }
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    for (std::size_t i = 0; i < bodies.size(); ++i) {
      series[i].begin();
      for (int call = 0; call < calls; ++call) {
        bodies[i].second();
      }
      series[i].end();
    }
  }
  for (const Series& one : series) {
    one.write();
  }
}

/// A chain of products, as one region: `rows` makes it tiny or costly.
void region(const std::string& name, int64_t rows, int calls) {
  const at::Tensor x = at::randn({rows, rows}).requires_grad_();
  const at::Tensor weight = at::randn({rows, rows});
  const auto f = [weight](const at::Tensor& in) {
    return at::tanh(at::tanh(at::tanh(in.mm(weight)).mm(weight)).mm(weight));
  };
  const at::Tensor ones = at::ones({rows, rows});
  record(name,
         {{"checkpoint", [&] { checkpoint(f, x).backward(ones); }},
          {"plain", [&] { f(x).backward(ones); }},
          {"forward", [&] { f(x); }}},
         calls, 60);
}

void solver() {
  ChainCosts costs(100);
  for (std::size_t i = 0; i < costs.size(); ++i) {
    costs[i].forward_seconds = 1.0 + static_cast<double>(i * 7 % 13);
    costs[i].backward_seconds = 2 * costs[i].forward_seconds;
    costs[i].output_bytes = static_cast<int64_t>(1000 + i * 5 % 11 * 300);
    costs[i].saved_bytes = 3 * costs[i].output_bytes;
    costs[i].keeps_input = i % 3 != 0;
  }
  const int64_t budget = CheckpointPlan::uniform(100, 1).predict(costs).peak_bytes / 3;
  record("solver", {{"planner", [&] { plan_checkpoints(costs, budget, 500); }}}, 1, 3);
}

bool run(const std::vector<std::string>& arguments) {
  const auto is = [&](std::size_t count, std::size_t place, const char* word) {
    return arguments.size() == count && arguments[place] == word;
  };
  if (is(3, 1, "plans")) {
    plans(arguments[0], std::stod(arguments[2]));
  } else if (arguments.size() > 2 && arguments[1] == "uniform") {
    uniform(arguments[0], {arguments.begin() + 2, arguments.end()});
  } else if (is(2, 1, "curve")) {
    curve(arguments[0]);
  } else if (is(1, 0, "regions")) {
    region("tiny region", 2, 100);
    region("costly region", 384, 1);
  } else if (is(1, 0, "solver")) {
    solver();
  } else {
    return false;
  }
  return true;
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  at::set_num_threads(1);
  lockstep::detail::keep_freed_memory();
  try {
    if (lockstep::benchmarks::run({argv + 1, argv + argc})) {
      return 0;
    }
    std::cerr << "usage: activation CHAIN plans PERCENT | CHAIN uniform N... | CHAIN curve | "
                 "regions | solver\n";
    return 2;
  } catch (const std::exception& error) {
    std::cerr << argv[0] << ": " << error.what() << "\n";
    return 1;
  }
}
