#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "models/resnet.h"
#include "precision_options.h"
#include "run_options.h"

/// What 08_resnet can be asked for.
struct Options {
  std::vector<std::string> train, test;
  bool synthetic = false;
  bool plain_images = false;
  std::string finetune;
  bool freeze_norms = false;
  ResNetSize size;
  PrecisionOptions precision;
  RunOptions run;
  int64_t batch_size = 128;
  double learning_rate = 0.1;
  double min_accuracy = 0.0;

  Options() { run.run = "runs/resnet"; }
};

inline void add_options(CLI::App& app, Options& options) {
  app.add_option("--train", options.train, "Training files: data_batch_1.bin ..., or train.bin");
  app.add_option("--test", options.test, "Test files: test_batch.bin, or test.bin");
  app.add_flag("--synthetic", options.synthetic, "Small made-up images instead of files");
  app.add_flag("--plain-images", options.plain_images, "No random crops and mirrored images");
  app.add_option("--finetune", options.finetune,
                 "Begin with these weights (safetensors); of a head of other classes, with all but "
                 "the head");
  app.add_flag("--freeze-norms", options.freeze_norms, "Batch norms keep statistics and weights");
  app.add_option("--depth", options.size.depth)
      ->check(CLI::IsMember({18, 34, 50, 101, 152}))
      ->capture_default_str();
  app.add_option("--classes", options.size.classes, "10, or 100 for CIFAR-100")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--width", options.size.width, "Channels of the first stage")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--batch-size", options.batch_size, "Images in an update, all ranks together")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--learning-rate", options.learning_rate, "The highest")->capture_default_str();
  app.add_option("--min-accuracy", options.min_accuracy, "Fail if the result is below this");
  add_options(app, options.precision);
  add_options(app, options.run);
}
