#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::exported {

/// The node of a region: settings, a graph with names of its own, and what goes in and out.
struct RegionNode {
  /// Throws Malformed, or nlohmann::json::exception. `node` must live as long.
  explicit RegionNode(const nlohmann::json& node);

  nlohmann::json settings;  // the inputs before the graph
  const nlohmann::json& graph;
  std::vector<std::pair<std::string, std::string>> inputs;   // names in the graph and outside
  std::vector<std::pair<std::string, std::string>> results;  // names outside and in the graph
};

}  // namespace lockstep::exported
