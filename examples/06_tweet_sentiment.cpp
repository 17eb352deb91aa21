// BERT reads tweets, with its activations within a budget.
//
//   lockstep run -n 2 -- build/examples/06_tweet_sentiment --tweets train.csv --vocabulary
//   vocab.txt
//       --layers 12 --width 768 --length 64 --batch-size 64 --epochs 3 --learning-rate 5e-5
//       [--weights model.safetensors] [--activations plain|checkpoint|automatic|"2 GiB"] ...
//   build/examples/06_tweet_sentiment --compare --layers 12 --width 768 --length 64 --batch-size 64
//
// --tweets takes a CSV file with the columns textID, text, selected_text, sentiment (Kaggle, Tweet
// Sentiment Extraction); --vocabulary and --weights take vocab.txt and model.safetensors of
// bert-base-uncased. Without them the program makes up its sentences. A tenth of the tweets is held
// out; it ends with the accuracy on them, as a table and in runs/tweet_sentiment/result.json.
// plain keeps all activations, checkpoint none but the layers' inputs. With a budget the cheap
// parts of each layer are always computed again, and the planner chooses what else. The losses are
// the same, bit for bit. --compare prints what each costs.

#include <lockstep/amp/optimizers.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/best_snapshot.h>
#include <lockstep/runtime/evaluate.h>
#include <lockstep/runtime/loader.h>
#include <lockstep/runtime/runtime.h>
#include <lockstep/runtime/train_epochs.h>
#include <lockstep/runtime/trainer.h>
#include <lockstep/runtime/trainer_options.h>
#include <torch/nn.h>

#include <iostream>
#include <memory>

#include "activation_costs.h"
#include "command_line.h"
#include "models/bert.h"
#include "result_file.h"
#include "run_options.h"
#include "tweet_options.h"
#include "tweets.h"

namespace {

Recompute recompute(const Options& options) {
  return options.activations == "plain"        ? Recompute::nothing
         : options.activations == "checkpoint" ? Recompute::layers
                                               : Recompute::cheap_parts;
}

lockstep::TrainerOptions trainer_options(const Options& options, const Bert& model, int64_t steps) {
  lockstep::TrainerOptions result;
  result.precision(precision_of(options.precision))
      .clip_grad_norm(1.0)
      .schedule(lockstep::WarmupLinear(steps / 10, steps));
  if (recompute(options) == Recompute::cheap_parts) {
    result.activation_budget(options.activations).activation_chain(model->chain);
  }
  return result;
}

lockstep::AdamW optimizer(const Options& options) {
  return lockstep::AdamW(options.learning_rate).weight_decay(0.01).no_decay_on_norms_and_biases();
}

torch::Tensor loss_of(lockstep::Trainer& trainer, Bert& model,
                      const std::pair<torch::Tensor, torch::Tensor>& batch) {
  const auto [pieces, labels] = trainer.to_device(batch);
  return torch::nn::functional::cross_entropy(model->forward(pieces), labels);
}

/// A run whose steps can be made one at a time.
struct SteppedRun {
  SteppedRun(lockstep::Runtime& runtime, const Options& options, const Tweets& tweets)
      : model((torch::manual_seed(runtime.seed()), options.size), recompute(options)),
        trainer(runtime, model, optimizer(options), trainer_options(options, model, 1000)),
        loader(runtime.loader(
            tweets,
            lockstep::LoaderOptions().batch_size(options.batch_size / runtime.size()).epochs(8))) {}

  double step() {
    torch::manual_seed(static_cast<uint64_t>(trainer.updates()));  // runs share the generator
    const double loss = trainer.step([&] { return loss_of(trainer, model, *batch); }).loss();
    ++batch;
    return loss;
  }

  Bert model;
  lockstep::Trainer trainer;
  lockstep::Loader<Tweets> loader;
  lockstep::Loader<Tweets>::Iterator batch = loader.begin();
};

void train(lockstep::Runtime& runtime, Options options) {
  const Tweets tweets = options.tweets.empty()
                            ? made_up_tweets(640, options.length)
                            : read_tweets(options.tweets, options.vocabulary, options.length);
  options.size.vocabulary = tweets.vocabulary;
  if (options.compare) {
    return compare_activations(
        runtime, options.run.run + "/compare.json", [&](const std::string& activations) {
          options.activations = activations;
          const auto run = std::make_shared<SteppedRun>(runtime, options, tweets);
          return [run] { return run->step(); };
        });
  }
  auto loader = runtime.loader(
      tweets.part(false), lockstep::LoaderOptions()
                              .batch_size(std::max<int64_t>(1, options.batch_size / runtime.size()))
                              .shuffle(true)
                              .drop_last(true));
  const auto held_out =
      runtime.validation_loader(tweets.part(true), lockstep::LoaderOptions().batch_size(64));
  Bert model(options.size, recompute(options));
  if (!options.weights.empty()) {
    load_bert(model, options.weights);
  }
  const int64_t steps = options.run.epochs * loader.batches_per_epoch();
  lockstep::Trainer trainer(
      runtime, model, optimizer(options),
      trainer_options(options, model, steps).snapshots(options.run.snapshots()));
  std::cout << runtime.summary() << trainer.summary() << std::flush;
  lockstep::ConfusionMatrix confusion(3);
  const auto test = [&] {
    return lockstep::evaluate(trainer, model, held_out, lockstep::Accuracy(), confusion);
  };
  const auto step = [&](const auto& batch) {
    return trainer.step([&] { return loss_of(trainer, model, batch); });
  };
  lockstep::train_epochs(trainer, loader, options.run.training(), step, test);
  lockstep::load_best(trainer, options.run.run);
  const auto found = test();
  ResultFile result(runtime, options.run.run + "/result.json");
  result.add("held-out accuracy", found["accuracy"]);
  result.add("balanced accuracy", found["balanced_accuracy"]);
  result.add("updates", static_cast<double>(trainer.updates()));
  result.write();
  LOCKSTEP_CHECK(found["accuracy"] >= options.min_accuracy, "the accuracy is ", found["accuracy"],
                 ", expected at least ", options.min_accuracy);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains BERT on the sentiment of tweets.");
  add_options(app, options);
  if (const auto code = parse(app, argc, argv)) {
    return *code;
  }
  return lockstep::run(argc, argv, [&](lockstep::Runtime& runtime) { train(runtime, options); });
}
