#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/ivalue_inl.h>
#include <ATen/core/jit_type.h>
#include <lockstep/collectives/impl/bounded_json.h>
#include <lockstep/inputs/exported/archive/json_values.h>
#include <lockstep/inputs/exported/graph/tree.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace lockstep::exported {

namespace {

using Json = nlohmann::json;

constexpr int kDeepestTree = 64;

/// The keys of a dict, or of another container that stores them as one (a ModelOutput of
/// transformers). Empty if the context holds anything else.
std::vector<std::string> keys_of(const Json& context, size_t children) {
  std::vector<std::string> keys;
  Json list;
  try {
    list = context.is_string() ? detail::bounded_json(context.get<std::string>()) : Json();
  } catch (const detail::BadJson&) {  // of a container that stores something else
    return {};
  }
  if (!list.is_array() || list.size() != children) {
    return {};
  }
  for (const Json& key : list) {
    if (!key.is_string() && !key.is_number()) {
      return {};
    }
    keys.push_back(key.is_string() ? key.get<std::string>() : key.dump());
  }
  return keys;
}

}  // namespace

Tree Tree::parse(const std::string& text) {
  detail::JsonLimits limits;
  limits.depth = 4 * kDeepestTree;
  Json spec;
  try {
    spec = detail::bounded_json(text, limits);
  } catch (const detail::BadJson& error) {
    malformed("the structure of the outputs is damaged: ", error.what());
  }
  if (!spec.is_array() || spec.size() != 2 || spec.at(0) != 1) {
    malformed("the structure of the outputs has an unknown version");
  }
  return parse(spec.at(1), 0);
}

Tree Tree::parse(const Json& spec, int depth) {
  if (depth > kDeepestTree) {
    malformed("the outputs are nested deeper than ", kDeepestTree, " containers");
  }
  Tree tree;
  if (spec.at("type").is_null()) {
    return tree;
  }
  for (const Json& child : spec.at("children_spec")) {
    tree.children_.push_back(parse(child, depth + 1));
  }
  const auto type = spec.at("type").get<std::string>();
  tree.kind_ = type == "builtins.list" ? Kind::list : Kind::tuple;
  if (type != "builtins.list" && type != "builtins.tuple") {
    tree.keys_ = keys_of(spec.at("context"), tree.children_.size());
    if (!tree.keys_.empty()) {
      tree.kind_ = Kind::dict;
    }
  }
  return tree;
}

size_t Tree::leaves() const {
  size_t sum = is_leaf() ? 1 : 0;
  for (const Tree& child : children_) {
    sum += child.leaves();
  }
  return sum;
}

std::vector<std::string> Tree::names() const {
  std::vector<std::string> names;
  name("", names);
  return names;
}

void Tree::name(const std::string& prefix, std::vector<std::string>& names) const {
  if (is_leaf()) {
    names.push_back(prefix);
    return;
  }
  for (size_t i = 0; i < children_.size(); ++i) {
    const std::string key = kind_ == Kind::dict ? keys_[i] : std::to_string(i);
    children_[i].name(prefix.empty() ? key : c10::str(prefix, ".", key), names);
  }
}

std::vector<std::string> Tree::paths() const {
  std::vector<std::string> paths;
  path("", paths);
  return paths;
}

void Tree::path(const std::string& prefix, std::vector<std::string>& paths) const {
  if (is_leaf()) {
    paths.push_back(prefix);
    return;
  }
  for (size_t i = 0; i < children_.size(); ++i) {
    const bool number =
        kind_ != Kind::dict || keys_[i].find_first_not_of("0123456789") == std::string::npos;
    const std::string key = kind_ == Kind::dict ? keys_[i] : std::to_string(i);
    children_[i].path(number ? c10::str(prefix, "[", key, "]") : c10::str(prefix, "['", key, "']"),
                      paths);
  }
}

c10::IValue Tree::build(const std::vector<c10::IValue>& leaves) const {
  size_t next = 0;
  return build(leaves, next);
}

c10::IValue Tree::build(const std::vector<c10::IValue>& leaves, size_t& next) const {
  if (is_leaf()) {
    return leaves.at(next++);
  }
  std::vector<c10::IValue> values;
  for (const Tree& child : children_) {
    values.push_back(child.build(leaves, next));
  }
  if (kind_ == Kind::tuple) {
    return c10::ivalue::Tuple::create(std::move(values));
  }
  if (kind_ == Kind::list) {
    c10::impl::GenericList list(c10::AnyType::get());
    for (c10::IValue& value : values) {
      list.push_back(std::move(value));
    }
    return list;
  }
  c10::impl::GenericDict dict(c10::StringType::get(), c10::AnyType::get());
  for (size_t i = 0; i < values.size(); ++i) {
    dict.insert(keys_[i], std::move(values[i]));
  }
  return dict;
}

}  // namespace lockstep::exported
