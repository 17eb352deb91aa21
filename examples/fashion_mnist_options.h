#pragma once

#include <lockstep/amp/precision.h>

#include <CLI/CLI.hpp>
#include <string>

/// What 03_fashion_mnist can be asked for.
struct Options {
  std::string data = "/usr/share/datasets/fashion-mnist";
  std::string out = "runs/fashion_mnist/result.json";
  std::string snapshots;
  std::string precision = "O0";
  int64_t epochs = 4;
  int64_t batch_size = 128;
  double min_accuracy = 0.0;
  bool synthetic = false;
};

inline void add_options(CLI::App& app, Options& options) {
  app.add_option("--data", options.data, "Folder with the four IDX files")->capture_default_str();
  app.add_option("--out", options.out, "Result file")->capture_default_str();
  app.add_option("--snapshots", options.snapshots,
                 "Save in this folder, and go on from what it has");
  app.add_option("--precision", options.precision)->check(CLI::IsMember({"O0", "O1", "O2"}));
  app.add_option("--epochs", options.epochs)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--batch-size", options.batch_size, "Images in an update, all ranks together")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--min-accuracy", options.min_accuracy, "Fail if the result is below this");
  app.add_flag("--synthetic", options.synthetic, "Small made-up images instead of files");
}

/// O0 sends its gradients in fp16; O1 and O2 compute in fp16 too, which CPUs do tens of times more
/// slowly than fp32, even with AVX512-FP16.
inline lockstep::Precision precision_of(const Options& options) {
  return options.precision == "O2"   ? lockstep::Precision::O2()
         : options.precision == "O1" ? lockstep::Precision::O1()
                                     : lockstep::Precision::O0().wire(torch::kHalf);
}
