#include "predict/predict.h"

#include <cstdio>
#include <ostream>
#include <set>
#include <sstream>
#include <stdexcept>

#include "predict/network.h"
#include "rank/exit_codes.h"

namespace lockstep::launcher {
namespace {

std::set<int> numbers_of_ranks(const std::string& text) {
  int low = 0;
  int high = 0;
  char rest = 0;
  std::set<int> numbers;
  if (std::sscanf(text.c_str(), "%d..%d%c", &low, &high, &rest) == 2) {
    if (low >= 1 && low <= high && high <= kMostRanks) {
      numbers = {low, high};
      for (int power = 1; power < high; power *= 2) {
        if (power > low) {
          numbers.insert(power);
        }
      }
    }
  } else {
    std::istringstream parts(text);
    for (std::string part; std::getline(parts, part, ',');) {
      if (std::sscanf(part.c_str(), "%d%c", &low, &rest) != 1 || low < 1 || low > kMostRanks) {
        numbers.clear();
        break;
      }
      numbers.insert(low);
    }
  }
  if (numbers.empty()) {
    throw std::runtime_error("ranks: " + text +
                             " is no range such as 2..64 and no list such as 2,3,4");
  }
  return numbers;
}

void print(const Forecast& as_recorded, const Advice& advice, std::ostream& out) {
  char line[256];
  const std::string accumulate =
      advice.accumulate == 0 ? "> 1024" : std::to_string(advice.accumulate);
  std::snprintf(line, sizeof(line), "%6d %6d %12.2f %12.2f %11.1f%%  %-15s %9.0f %12.2f %11s\n",
                as_recorded.ranks, as_recorded.nodes, as_recorded.seconds * 1e3,
                as_recorded.exposed * 1e3, as_recorded.efficiency * 100, as_recorded.limit.c_str(),
                advice.bucket_bytes / (1 << 20), advice.with_buckets.seconds * 1e3,
                accumulate.c_str());
  out << line;
}

}  // namespace

int predict(const Question& question, std::ostream& out, std::ostream& error) {
  try {
    const std::set<int> numbers = numbers_of_ranks(question.ranks);
    const Network network = Network::read(question.network);
    const StepRecord step = StepRecord::read(question.record);
    const Sharding& sharding = question.sharding;
    if (sharding.weights && !sharding.optimizer) {
      throw std::runtime_error("--share-weights needs --shard-optimizer");
    }
    char line[256];
    std::snprintf(line, sizeof(line),
                  "recorded: %d x (forward %.2f ms + backward %.2f ms) + update %.2f ms, %.2f MiB "
                  "of gradients in %zu buckets\n",
                  step.accumulate, step.forward * 1e3, step.backward * 1e3, step.update * 1e3,
                  step.bytes() / (1 << 20), step.buckets.size());
    out << line;
    if (sharding.optimizer) {
      out << "the states are sharded over the ranks"
          << (sharding.weights ? ", and a node has one copy of the weights\n" : "\n");
    }
    out << " ranks  nodes    update ms   exposed ms   efficiency  limited by      best MiB   "
           "then ms  accumulate\n";
    for (const int number : numbers) {
      print(Forecast::of(step, network, number, step.accumulate, sharding),
            Advice::of(step, network, number, sharding), out);
    }
    return 0;
  } catch (const std::exception& problem) {
    error << "lockstep: " << problem.what() << "\n";
    return exit_usage;
  }
}

}  // namespace lockstep::launcher
