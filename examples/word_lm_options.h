#pragma once

#include <CLI/CLI.hpp>
#include <string>

#include "models/word_lm.h"
#include "precision_options.h"
#include "run_options.h"

/// What 07_word_lm can be asked for. The defaults are those of
/// pytorch/examples/word_language_model.
struct Options {
  std::string data = "wikitext-2";
  bool synthetic = false;
  WordLmSize size;
  int64_t batch_size = 20;
  int64_t length = 35;
  double learning_rate = 20.0;
  double clip = 0.25;
  int64_t local_updates = 0;
  PrecisionOptions precision;
  RunOptions run;

  Options() {
    run.run = "runs/word_lm";
    run.epochs = 30;
  }
};

inline void add_options(CLI::App& app, Options& options) {
  app.add_option("--data", options.data, "Folder with train.txt, valid.txt, test.txt");
  app.add_flag("--synthetic", options.synthetic, "A small made-up language instead of files");
  app.add_option("--cell", options.size.cell)
      ->check(CLI::IsMember({"LSTM", "GRU", "RNN_TANH", "RNN_RELU"}))
      ->capture_default_str();
  app.add_flag("--tied", options.size.tied, "Decoder and encoder have the same weights");
  app.add_option("--width", options.size.width)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--hidden", options.size.hidden)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--layers", options.size.layers)
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--dropout", options.size.dropout)->check(CLI::Range(0.0, 0.99));
  app.add_option("--batch-size", options.batch_size, "Columns of text, all ranks together")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--length", options.length, "Words of a column in an update")
      ->check(CLI::PositiveNumber);
  app.add_option("--learning-rate", options.learning_rate)->capture_default_str();
  app.add_option("--clip", options.clip)->capture_default_str();
  app.add_option("--local-updates", options.local_updates,
                 "Exchange weights after this many updates instead of gradients in each (LocalSGD)")
      ->check(CLI::PositiveNumber);
  add_options(app, options.precision);
  add_options(app, options.run);
}
