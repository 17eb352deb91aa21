#pragma once

#include <cstdint>
#include <string>

namespace lockstep::launcher {

constexpr int kMostRanks = 1 << 20;  // that a file or a command line may name

/// The cost of collectives within a node and between nodes, from measured rates. Times in
/// seconds. docs/predict.md explains the formulas. Threads: a plain value.
struct Network {
  int ranks_per_node = 1;
  double node_latency = 0.0;  // of one all-reduce of a few bytes among the ranks of a node
  double node_rate = 0.0;     // bytes per second that a rank all-reduces there
  double link_latency = 0.0;  // from node to node, one way
  double link_rate = 0.0;     // bytes per second that a node sends
  // Seconds of a rank's core for each byte that the rank sends over the link.
  double link_processor = 0.0;

  /// Reads a file such as
  ///   {"ranks_per_node": 8, "node": {"latency_us": 1, "gigabytes_per_second": 10},
  ///    "link": {"latency_us": 50, "gigabits_per_second": 10, "processor_us_per_megabyte": 800}}
  /// "processor_us_per_megabyte" may be left out.
  /// Throws std::runtime_error that names the file and what is missing or not positive.
  static Network read(const std::string& path);

  struct Cost {
    double node = 0.0;       // within the nodes
    double latency = 0.0;    // of the link
    double transfer = 0.0;   // over the link
    double processor = 0.0;  // of a rank's core, during the transfer
    double total() const { return node + latency + transfer; }
    Cost operator+(const Cost& other) const {
      return {node + other.node, latency + other.latency, transfer + other.transfer,
              processor + other.processor};
    }
  };
  int nodes(int ranks) const { return (ranks + ranks_per_node - 1) / ranks_per_node; }
  /// The cost of an all-reduce of `bytes`, in elements of `element` bytes, over `ranks` ranks.
  Cost all_reduce(double bytes, int element, int ranks) const;
  /// The same, if each rank gets its shard alone.
  Cost reduce_scatter(double bytes, int element, int ranks) const;
  /// Of shards of all ranks that are `bytes` together. `to_nodes`: a node gets them once.
  Cost all_gather(double bytes, int ranks, bool to_nodes) const;

 private:
  void add_sent(double bytes, double ranks_of_node, Cost& cost) const;
};

}  // namespace lockstep::launcher
