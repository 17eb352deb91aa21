#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "models/gpt2.h"
#include "precision_options.h"
#include "run_options.h"

/// What 10_gpt2 can be asked for.
struct Options {
  std::string tokenizer = "gpt2-tokenizer";
  std::string text, weights, activations;
  std::string prompt = "\n";
  int64_t tokens = 100;
  SampleOptions sampling;
  Gpt2Size size;
  int64_t length = 0;
  int64_t batch_size = 8;
  double learning_rate = 3e-4;
  int64_t local_updates = 0;
  PrecisionOptions precision;
  RunOptions run;

  Options() {
    run.run = "runs/gpt2";
    run.epochs = 1;
  }
};

inline void add_options(CLI::App& app, Options& options) {
  app.add_option("--tokenizer", options.tokenizer, "Folder with encoder.json and vocab.bpe")
      ->capture_default_str();
  app.add_option("--text", options.text, "Train on this file; without it the program only writes");
  app.add_option("--weights", options.weights, "Begin with a published checkpoint (safetensors)");
  app.add_option("--prompt", options.prompt, "The beginning of the text that it writes at the end");
  app.add_option("--tokens", options.tokens, "How many it writes")->capture_default_str();
  app.add_option("--temperature", options.sampling.temperature, "0: always the likeliest token")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--top-k", options.sampling.top_k)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--layers", options.size.layers)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--width", options.size.width)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--heads", options.size.heads)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--context", options.size.context)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--dropout", options.size.dropout)->check(CLI::Range(0.0, 0.99));
  app.add_option("--length", options.length, "Tokens of a sample; default: the context");
  app.add_option("--batch-size", options.batch_size, "Samples in an update, all ranks together")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--learning-rate", options.learning_rate)->capture_default_str();
  app.add_option("--activations", options.activations, "A budget such as \"2 GiB\", or automatic");
  app.add_option("--local-updates", options.local_updates,
                 "Exchange weights after this many updates instead of gradients in each (DiLoCo)")
      ->check(CLI::PositiveNumber);
  add_options(app, options.precision);
  add_options(app, options.run);
}
