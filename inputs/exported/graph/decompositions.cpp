#include <c10/util/StringUtil.h>
#include <lockstep/inputs/exported/graph/decompositions.h>

namespace lockstep::exported {

namespace {

using Json = nlohmann::json;

const Json* find_input(const Json& inputs, const std::string& name) {
  for (const Json& input : inputs) {
    if (input.at("name") == name) {
      return &input.at("arg");
    }
  }
  return nullptr;
}

/// The convolution of so many dimensions that torch.nn.functional calls.
Call separate_convolution(const Json& given, const Json& tensors) {
  const Json* const weight = find_input(given, "weight");
  const Json* const transposed = find_input(given, "transposed");
  if (weight == nullptr || transposed == nullptr) {
    return {"torch.ops.aten.convolution.default", given};
  }
  const bool up = transposed->at("as_bool").get<bool>();
  const size_t dimensions =
      tensors.at(weight->at("as_tensor").at("name").get<std::string>()).at("sizes").size() - 2;
  Call call{c10::str("torch.ops.aten.", up ? "conv_transpose" : "conv", dimensions, "d.",
                     up && dimensions > 1 ? "input" : "default"),
            Json::array()};
  for (const Json& input : given) {
    const auto name = input.at("name").get<std::string>();
    if (name != "transposed" && (up || name != "output_padding")) {
      call.inputs.push_back(input);
    }
  }
  return call;
}

}  // namespace

Decompositions::Decompositions(const Json& program) {
  const auto verifiers = program.find("verifiers");
  any_ =
      verifiers != program.end() && !verifiers->empty() && *verifiers != Json::array({"TRAINING"});
}

Call Decompositions::undone(const Json& node, const Source& source, const std::string& origin,
                            const Json& tensors) {
  const auto target = node.at("target").get<std::string>();
  const Json& inputs = node.at("inputs");
  if (target == "torch.ops.aten.convolution.default") {
    return separate_convolution(inputs, tensors);
  }
  if (!any_) {
    return {target, inputs};
  }
  if (source.function() == "wrap_with_set_grad_enabled") {
    lost_gradients_.push_back({origin, "was inside of torch.no_grad() or torch.enable_grad()"});
  }
  if (target != "torch.ops.aten.alias.default" || source.function() == "alias") {
    return {target, inputs};
  }
  if (source.function().empty()) {
    lost_gradients_.push_back({origin, "may have been a detach()"});
  }
  return {"torch.ops.aten.detach.default", inputs};
}

}  // namespace lockstep::exported
