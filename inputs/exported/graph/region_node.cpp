#include <lockstep/inputs/exported/archive/json_values.h>
#include <lockstep/inputs/exported/graph/region_node.h>

namespace lockstep::exported {

namespace {

using Json = nlohmann::json;

bool is_graph(const Json& input) {
  return input.at("arg").contains("as_graph");
}

const Json& graph_of(const Json& inputs) {
  for (const Json& input : inputs) {
    if (is_graph(input)) {
      return input.at("arg").at("as_graph").at("graph");
    }
  }
  malformed("the region has no graph");
}

/// The names of tensors and symbolic numbers; "" for other values.
std::vector<std::string> names_of(const Json& arguments) {
  std::vector<std::string> names;
  for (const Json& argument : arguments) {
    const auto [kind, value] =
        alternative(argument.contains("arg") ? argument.at("arg") : argument);
    if (kind == "as_tensors") {
      for (const Json& tensor : *value) {
        names.push_back(tensor.at("name").get<std::string>());
      }
      continue;
    }
    const char* const field = kind == "as_tensor" ? "name" : "as_name";
    names.push_back(value->is_object() ? value->value(field, "") : "");
  }
  return names;
}

std::vector<std::pair<std::string, std::string>> pairs(const std::vector<std::string>& names,
                                                       const std::vector<std::string>& others) {
  if (names.size() != others.size()) {
    malformed("the region takes or returns ", names.size(), " values, and the node has ",
              others.size());
  }
  std::vector<std::pair<std::string, std::string>> result;
  for (size_t i = 0; i < names.size(); ++i) {
    if (!names[i].empty()) {
      result.emplace_back(names[i], others[i]);
    }
  }
  return result;
}

}  // namespace

RegionNode::RegionNode(const Json& node)
    : settings(Json::array()), graph(graph_of(node.at("inputs"))) {
  Json operands = Json::array();
  bool after = false;
  for (const Json& input : node.at("inputs")) {
    if (is_graph(input)) {
      after = true;
    } else {
      (after ? operands : settings).push_back(input);
    }
  }
  inputs = pairs(names_of(graph.at("inputs")), names_of(operands));
  results = pairs(names_of(node.at("outputs")), names_of(graph.at("outputs")));
}

}  // namespace lockstep::exported
