#include "predict/network.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "predict/json_file.h"

namespace lockstep::launcher {
namespace {

using Json = nlohmann::json;

constexpr double kFewBytes = 4 << 10;  // up to this each node sums all elements itself
constexpr double kSmall = 64 << 10;    // bytes; up to this nodes exchange elements, not sums
constexpr double kSum = 4;             // bytes of a partial sum of one element of up to 4 bytes
constexpr double kMostOfAFigure = 1e12;
constexpr const char* kProcessor = "processor_us_per_megabyte";

double number(const Json& from, const std::string& path, const char* part, const char* name) {
  const bool found = from.contains(part) && from[part].is_object() && from[part].contains(name) &&
                     from[part][name].is_number();
  const double value = found ? from[part][name].get<double>() : 0.0;
  if (!(value > 0.0 && value <= kMostOfAFigure)) {
    throw std::runtime_error(path + ": needs {\"" + part + "\": {\"" + name +
                             "\": a number above 0}}, at most 1e12");
  }
  return value;
}

}  // namespace

Network Network::read(const std::string& path) {
  const Json json = json_object(path);
  Network network;
  try {
    const double ranks = json.value("ranks_per_node", 0.0);
    network.ranks_per_node = ranks >= 1.0 && ranks <= kMostRanks ? static_cast<int>(ranks) : 0;
  } catch (const Json::exception& error) {  // a value of another type
    throw std::runtime_error(path + ": " + error.what());
  }
  if (network.ranks_per_node < 1) {
    throw std::runtime_error(path + ": needs {\"ranks_per_node\": a number above 0}");
  }
  if (network.ranks_per_node > 1) {
    network.node_latency = number(json, path, "node", "latency_us") * 1e-6;
    network.node_rate = number(json, path, "node", "gigabytes_per_second") * 1e9;
  }
  network.link_latency = number(json, path, "link", "latency_us") * 1e-6;
  network.link_rate = number(json, path, "link", "gigabits_per_second") * 1e9 / 8;
  if (json["link"].contains(kProcessor)) {
    network.link_processor = number(json, path, "link", kProcessor) * 1e-6 / 1e6;
  }
  return network;
}

Network::Cost Network::all_reduce(double bytes, int element, int ranks) const {
  Cost cost;
  const int count = nodes(ranks);
  const double local = std::min(ranks, ranks_per_node);
  if (local > 1) {
    cost.node = node_latency + 2 * (local - 1) / local * bytes / node_rate;
  }
  if (count == 1) {
    return cost;
  }
  double sent = 0.0;  // bytes, by a node
  const double share = static_cast<double>(count - 1) / count;
  const double elements = bytes / element;
  const double sum = std::max<double>(kSum, element);
  if (bytes <= kFewBytes) {  // one round of an exchange
    cost.latency = link_latency;
    sent = (count - 1) * elements * local * element;
  } else if (bytes <= kSmall || local * element <= sum) {  // two rounds of an exchange
    cost.latency = 2 * link_latency;
    sent = share * elements * (local * element + element);
  } else {  // a chain: sums go one way, results the other
    cost.latency = 2 * (count - 1) * link_latency;
    sent = elements * (sum + element);
  }
  add_sent(sent, local, cost);
  return cost;
}

/// Between nodes an exchange of shares, where that takes fewer bytes than the sums of a chain.
Network::Cost Network::reduce_scatter(double bytes, int element, int ranks) const {
  const int count = nodes(ranks);
  const double local = std::min(ranks, ranks_per_node);
  const double sum = std::max<double>(kSum, element);
  if (count > 1 && (count - 1) * local * element > count * (sum + element)) {
    return all_reduce(bytes, element, ranks);
  }
  Cost cost;
  if (local > 1) {
    cost.node = node_latency + (local - 1) / local * bytes / node_rate;
  }
  if (count > 1) {
    cost.latency = link_latency;
    add_sent((count - 1) * local * bytes / count, local, cost);
  }
  return cost;
}

Network::Cost Network::all_gather(double bytes, int ranks, bool to_nodes) const {
  Cost cost;
  const int count = nodes(ranks);
  const double local = std::min(ranks, ranks_per_node);
  if (local > 1) {
    cost.node = node_latency + (to_nodes ? 0.0 : (local - 1) / local * bytes / node_rate);
  }
  if (count > 1) {
    cost.latency = link_latency;
    add_sent((count - 1) * bytes / count, local, cost);
  }
  return cost;
}

void Network::add_sent(double bytes, double ranks_of_node, Cost& cost) const {
  cost.processor = bytes / ranks_of_node * link_processor;  // each rank of a node sends its part
  cost.transfer = std::max(bytes / link_rate, cost.processor);
}

}  // namespace lockstep::launcher
