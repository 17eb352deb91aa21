#pragma once

#include <lockstep/amp/precision.h>

#include <CLI/CLI.hpp>
#include <string>

/// The precision as options of a program: --precision, --dtype, --wire.
struct PrecisionOptions {
  std::string level = "O0";
  std::string dtype = "bf16";
  std::string wire;  // empty: the level's
};

inline void add_options(CLI::App& app, PrecisionOptions& options) {
  app.add_option("--precision", options.level)
      ->check(CLI::IsMember({"O0", "O1", "O2", "O3"}))
      ->capture_default_str();
  app.add_option("--dtype", options.dtype, "In which O1 to O3 compute")
      ->check(CLI::IsMember({"fp16", "bf16"}))
      ->capture_default_str();
  app.add_option("--wire", options.wire, "In which gradients travel; default: the level's")
      ->check(CLI::IsMember({"fp32", "fp16", "bf16"}));
}

inline lockstep::Precision precision_of(const PrecisionOptions& options) {
  const auto dtype_of = [](const std::string& name) {
    return name == "fp16" ? torch::kHalf : name == "bf16" ? torch::kBFloat16 : torch::kFloat;
  };
  const auto compute = dtype_of(options.dtype);
  const lockstep::Precision precision = options.level == "O0"   ? lockstep::Precision::O0()
                                        : options.level == "O1" ? lockstep::Precision::O1(compute)
                                        : options.level == "O2" ? lockstep::Precision::O2(compute)
                                                                : lockstep::Precision::O3(compute);
  return options.wire.empty() ? precision : precision.wire(dtype_of(options.wire));
}
