#pragma once

#include <lockstep/runtime/load_weights.h>

#include <set>
#include <string>

/// The names of all tensors in the safetensors files of a model from anywhere. Loads nothing.
inline std::set<std::string> names_in_file(const lockstep::Model& model, const std::string& path) {
  lockstep::snapshot::LoadOptions nothing;
  nothing.match = lockstep::snapshot::Match::partial;
  nothing.name_in_source = [](const std::string&) { return std::string(); };
  const auto report = lockstep::load_weights(model, path, nothing);
  return {report.unexpected.begin(), report.unexpected.end()};
}
