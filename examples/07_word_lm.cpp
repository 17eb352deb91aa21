// A word-level language model on WikiText-2: hidden state that is carried from update to update and
// through snapshots, a learning rate that is divided by 4 when the validation loss does not
// improve, and the best weights at the end.
//
//   lockstep run -n 2 -- build/examples/07_word_lm --data wikitext-2 [--cell LSTM] [--tied]
//       [--wire fp16] [--resume] ...
//
// It saves in runs/word_lm (--run) and, with --resume, goes on from the newest snapshot. The log is
// there, too: tensorboard --logdir runs/word_lm
// It ends with the perplexity of the test text, as a table and in runs/word_lm/result.json.

#include <lockstep/lockstep.h>

#include <iostream>

#include "command_line.h"
#include "models/word_lm.h"
#include "result_file.h"
#include "run_options.h"
#include "word_corpus.h"
#include "word_lm_options.h"

namespace {

/// exp(mean loss of a word). Columns are read in stretches, so that memory does not grow with them.
lockstep::Evaluation perplexity(lockstep::Trainer& trainer, WordLm& model,
                                const torch::Tensor& text, int64_t length) {
  const auto losses = [&](const auto& columns) {
    const auto [words, next] = trainer.to_device(columns);
    WordLmState state;
    std::vector<torch::Tensor> parts;
    for (int64_t begin = 0; begin < words.size(1); begin += length) {
      const auto stretch = torch::indexing::Slice(begin, begin + length);
      const torch::Tensor scores = model->forward(words.t().index({stretch}), state);
      parts.push_back(torch::nn::functional::cross_entropy(
          scores.flatten(0, 1), next.t().index({stretch}).flatten(),
          torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone)));
    }
    return torch::cat(parts);
  };
  const auto loader = trainer.runtime().validation_loader(
      lockstep::TextColumns(text, /*columns=*/10), lockstep::LoaderOptions().batch_size(5));
  return lockstep::evaluate(trainer, model, loader, losses, lockstep::Perplexity());
}

void train(lockstep::Runtime& runtime, const Options& options) {
  const WordCorpus corpus = options.synthetic ? made_up_corpus() : read_corpus(options.data);
  WordLmSize size = options.size;
  size.words = corpus.words;
  WordLm model(size);
  const lockstep::TextColumns columns(corpus.train, options.batch_size, options.length);
  auto loader = runtime.loader(
      columns, lockstep::LoaderOptions().batch_size(columns.batch_size(runtime.size())));
  lockstep::TrainerOptions trainer_options;
  trainer_options.precision(precision_of(options.precision))
      .clip_grad_norm(options.clip)
      .reduce_on_plateau(lockstep::ReduceOnPlateau().factor(0.25).patience(0).threshold(0.0))
      .snapshots(options.run.snapshots());
  if (options.local_updates > 0) {
    trainer_options.local_updates(lockstep::LocalUpdates(options.local_updates));
  }
  lockstep::Trainer trainer(runtime, model, lockstep::SGD(options.learning_rate), trainer_options);
  std::cout << runtime.summary() << trainer.summary() << std::flush;

  WordLmState state;
  trainer.state("hidden", state.hidden);
  trainer.state("cell", state.cell);
  const auto step = [&](const auto& batch) {
    if (loader.begins_epoch()) {
      state = {};
    }
    WordLmState after;
    const lockstep::StepReport report = trainer.step([&] {
      const auto [words, next] = trainer.to_device(batch);
      after = state;
      const torch::Tensor scores = model->forward(words.t(), after);
      return torch::nn::functional::cross_entropy(scores.flatten(0, 1), next.t().flatten());
    });
    state = detached(after);
    return report;
  };
  const auto validate = [&] {
    auto found = perplexity(trainer, model, corpus.valid, options.length);
    trainer.reduce_on_plateau(found);
    return found;
  };
  lockstep::train_epochs(trainer, loader, options.run.training(), step, validate);
  lockstep::load_best(trainer, options.run.run);
  ResultFile result(runtime, options.run.run + "/result.json");
  result.add("test perplexity",
             perplexity(trainer, model, corpus.test, options.length)["perplexity"]);
  result.add("learning rate", trainer.learning_rate());
  result.add("updates", static_cast<double>(trainer.updates()));
  result.write();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a word-level language model.");
  add_options(app, options);
  if (const auto code = parse(app, argc, argv)) {
    return *code;
  }
  return lockstep::run(argc, argv, [&](lockstep::Runtime& runtime) { train(runtime, options); });
}
