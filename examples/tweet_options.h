#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "models/bert.h"
#include "precision_options.h"
#include "run_options.h"

/// What 06_tweet_sentiment can be asked for.
struct Options {
  std::string tweets, vocabulary, weights;
  bool compare = false;
  std::string activations = "plain";
  int64_t batch_size = 16;
  int64_t length = 16;
  double learning_rate = 1e-3;
  double min_accuracy = 0.0;
  BertSize size;
  PrecisionOptions precision;
  RunOptions run;

  Options() {
    size.layers = 2;
    size.width = 64;
    run.run = "runs/tweet_sentiment";
  }
};

inline void add_options(CLI::App& app, Options& options) {
  app.add_option("--tweets", options.tweets, "CSV file; default: made-up sentences");
  app.add_option("--vocabulary", options.vocabulary, "WordPiece vocabulary for --tweets");
  app.add_option("--weights", options.weights,
                 "Begin with a published checkpoint (safetensors) of --layers and --width");
  app.add_flag("--compare", options.compare,
               "Train nothing: print memory and time of a step with and without checkpointing");
  app.add_option("--activations", options.activations, "plain, checkpoint, automatic or a budget")
      ->capture_default_str();
  app.add_option("--layers", options.size.layers)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--width", options.size.width, "64 for each head")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--length", options.length, "Pieces of a tweet")
      ->check(CLI::Range(4, 512))
      ->capture_default_str();
  app.add_option("--batch-size", options.batch_size, "Tweets in an update, all ranks together")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--learning-rate", options.learning_rate)->capture_default_str();
  app.add_option("--min-accuracy", options.min_accuracy, "Fail if the result is below this");
  add_options(app, options.precision);
  add_options(app, options.run);
}
