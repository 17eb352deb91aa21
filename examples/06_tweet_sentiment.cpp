// A BERT encoder that reads tweets, with its activations within a budget.
//
//   build/examples/06_tweet_sentiment [--tweets tweets.csv --vocabulary vocab.txt]
//                                     [--layers 12 --width 768 --batch-size 64]
//                                     [--activations plain|checkpoint|automatic|"2 GiB"]
//
// --tweets takes a CSV file with the columns textID, text, selected_text, sentiment; --vocabulary a
// WordPiece vocabulary, one piece a line. Without them the program makes up its sentences, and a
// small model learns them. plain keeps all activations, checkpoint none but the layers' inputs,
// and a budget lets the planner choose. The loss is the same, bit for bit.
// Expected: a table with loss, accuracy on the last batches, peak activations and time of a step.

#include <lockstep/lockstep.h>

#include <iostream>

#include "bert.h"
#include "command_line.h"
#include "result_file.h"
#include "tweets.h"

namespace {

struct Options {
  std::string tweets, vocabulary;
  std::string out = "runs/tweet_sentiment/result.json";
  std::string activations = "checkpoint";
  int64_t steps = 60;
  int64_t batch_size = 16;
  double learning_rate = 1e-3;
  double max_loss = 1.2;
  BertSize size;
};

lockstep::TrainerOptions trainer_options(const Options& options, const Bert& model) {
  lockstep::TrainerOptions result;
  result.clip_grad_norm(1.0).schedule(
      lockstep::WarmupCosine(std::max<int64_t>(1, options.steps / 10), options.steps));
  if (options.activations != "plain" && options.activations != "checkpoint") {
    result.activation_budget(options.activations).activation_chain(model->layers);
  }
  return result;
}

void train(lockstep::Runtime& runtime, Options options) {
  const Tweets tweets = options.tweets.empty()
                            ? made_up_tweets(512, options.size.length)
                            : read_tweets(options.tweets, options.vocabulary, options.size.length);
  options.size.vocabulary = tweets.vocabulary;
  auto loader = runtime.loader(
      tweets,
      lockstep::LoaderOptions().batch_size(options.batch_size).shuffle(true).epochs(options.steps));
  Bert model(options.size, /*checkpointed=*/options.activations == "checkpoint");
  lockstep::Trainer trainer(
      runtime, model,
      lockstep::AdamW(options.learning_rate).weight_decay(0.01).no_decay_on_norms_and_biases(),
      trainer_options(options, model));

  int64_t step = 0, peak = 0;
  double loss = 0.0, right = 0.0, fastest = 1e9;
  for (auto& batch : loader) {
    const Stopwatch watch;
    // The planner's own measurements are in the first step.
    const lockstep::MemoryMeter meter(runtime.device().type());
    const lockstep::StepReport report = trainer.step([&] {
      const auto [pieces, labels] = trainer.to_device(batch);
      const torch::Tensor scores = model->forward(pieces);
      right = scores.argmax(1).eq(labels).to(torch::kFloat).mean().item<double>();
      return torch::nn::functional::cross_entropy(scores, labels);
    });
    loss = report.loss();
    peak = step > 3 || options.steps <= 4 ? std::max(peak, meter.peak()) : 0;
    fastest = std::min(fastest, watch.seconds());
    if (++step == options.steps) {
      break;
    }
  }
  ResultFile result(runtime, options.out);
  result.add("loss of the last batch", loss);
  result.add("accuracy on the last batch", right);
  result.add("peak activations, MiB", static_cast<double>(peak) / (1 << 20));
  result.add("fastest step, s", fastest);
  result.write();
  LOCKSTEP_CHECK(loss < options.max_loss, "loss ", loss, ", expected below ", options.max_loss);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a BERT encoder on tweet sentiment.");
  app.add_option("--tweets", options.tweets, "CSV file; default: made-up sentences");
  app.add_option("--vocabulary", options.vocabulary, "WordPiece vocabulary for --tweets");
  app.add_option("--activations", options.activations, "plain, checkpoint, automatic or a budget")
      ->capture_default_str();
  app.add_option("--layers", options.size.layers)->check(CLI::PositiveNumber);
  app.add_option("--width", options.size.width, "64 for each head")->check(CLI::PositiveNumber);
  app.add_option("--length", options.size.length, "Pieces of a tweet")->check(CLI::PositiveNumber);
  app.add_option("--batch-size", options.batch_size, "Of each rank")->check(CLI::PositiveNumber);
  app.add_option("--steps", options.steps)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--learning-rate", options.learning_rate)->capture_default_str();
  app.add_option("--max-loss", options.max_loss, "Fail above it")->capture_default_str();
  app.add_option("--out", options.out, "Result file")->capture_default_str();
  if (const auto code = parse(app, argc, argv)) {
    return *code;
  }
  return lockstep::run(argc, argv, [&](lockstep::Runtime& runtime) { train(runtime, options); });
}
