// A word-level language model on WikiText-2: hidden state that is carried from update to update and
// through snapshots, a learning rate that is divided by 4 when the validation loss does not
// improve, and the best weights at the end.
//
//   lockstep run -n 2 -- build/examples/07_word_lm --data wikitext-2 [--cell LSTM] [--tied] ...
//
// It saves in runs/word_lm (--run) and, started again, goes on from the newest snapshot. The log is
// there, too: tensorboard --logdir runs/word_lm
// It ends with the perplexity of the test text, as a table and in runs/word_lm/result.json.

#include <lockstep/lockstep.h>

#include <cmath>
#include <iostream>

#include "command_line.h"
#include "models/word_lm.h"
#include "result_file.h"
#include "word_corpus.h"
#include "word_lm_options.h"

namespace {

/// The mean loss of a word. Columns are read in stretches, so that memory does not grow with them.
double mean_loss(lockstep::Trainer& trainer, WordLm& model, const torch::Tensor& text,
                 int64_t length) {
  const auto losses = [&](const torch::Tensor& columns) {
    const torch::Tensor words = trainer.to_device(columns.t());
    WordLmState state;
    std::vector<torch::Tensor> parts;
    for (int64_t begin = 0; begin + 1 < words.size(0); begin += length) {
      const int64_t count = std::min(length, words.size(0) - 1 - begin);
      const torch::Tensor scores = model->forward(words.narrow(0, begin, count), state);
      parts.push_back(torch::nn::functional::cross_entropy(
          scores.flatten(0, 1), words.narrow(0, begin + 1, count).flatten(),
          torch::nn::functional::CrossEntropyFuncOptions().reduction(torch::kNone)));
    }
    return torch::cat(parts);
  };
  const auto loader = trainer.runtime().validation_loader(WholeColumns{in_columns(text, 10)},
                                                          lockstep::LoaderOptions().batch_size(5));
  return lockstep::evaluate(trainer, model, loader, losses, lockstep::MeanOf("loss"))["loss"];
}

void train(lockstep::Runtime& runtime, const Options& options) {
  const WordCorpus corpus = options.synthetic ? made_up_corpus() : read_corpus(options.data);
  WordLmSize size = options.size;
  size.words = corpus.words;
  WordLm model(size);
  auto loader = runtime.local_loader(Stretches{
      columns_of_rank(in_columns(corpus.train, options.batch_size), runtime.rank(), runtime.size()),
      options.length});
  lockstep::Trainer trainer(
      runtime, model, lockstep::SGD(options.learning_rate),
      lockstep::TrainerOptions()
          .clip_grad_norm(options.clip)
          .reduce_on_plateau(lockstep::ReduceOnPlateau().factor(0.25).patience(0).threshold(0.0))
          .snapshots(lockstep::SnapshotOptions()
                         .folder(options.run)
                         .keep(lockstep::KeepOptions().best(1))));
  std::cout << runtime.summary() << trainer.summary() << std::flush;

  WordLmState state;
  int64_t validated = 0;  // epochs
  trainer.state("hidden", state.hidden);
  trainer.state("cell", state.cell);
  trainer.state("validated", validated);
  trainer.resume();
  trainer.stop_on_signals();
  lockstep::RunLog log(trainer, options.run, lockstep::RunLogOptions().log_every(20));
  log.watch(loader);

  for (int64_t epoch = loader.epoch(); epoch < options.epochs; ++epoch) {
    lockstep::Progress progress("epoch " + std::to_string(epoch + 1), loader.batches_per_epoch(),
                                runtime.is_main());
    if (loader.position().batch == 0) {
      state = {};
    }
    for (auto& batch : loader) {
      const auto [words, next] = trainer.to_device(batch);
      WordLmState after;
      const lockstep::StepReport report = trainer.step([&, &words = words, &next = next] {
        after = state;
        const torch::Tensor scores = model->forward(words, after);
        return torch::nn::functional::cross_entropy(scores.flatten(0, 1), next.flatten());
      });
      state = detached(after);
      log.step(report);
      const int64_t next_batch = loader.position().batch;
      const bool last = next_batch == 0;
      progress.show(last ? loader.batches_per_epoch() : next_batch, [&] {
        return lockstep::Progress::Values{{"loss", report.mean_loss()},
                                          {"lr", report.learning_rate()}};
      });
      if (!last && trainer.stop_requested()) {
        trainer.save_and_leave();
      }
      if (!last && report.micro_batch() % options.save_every == 0) {
        trainer.save();
      }
    }
    if (validated == epoch) {  // a run that is started again may have done this
      const double loss = mean_loss(trainer, model, corpus.valid, options.length);
      trainer.reduce_on_plateau(loss);
      validated = epoch + 1;
      log.log("validation/perplexity", std::exp(loss));
      log.flush();
      trainer.save(loss);
      if (runtime.is_main()) {
        std::cout << "epoch " << epoch + 1 << ": validation perplexity "
                  << lockstep::format_number(std::exp(loss)) << std::endl;
      }
    }
    if (trainer.stop_requested()) {
      trainer.save_and_leave();
    }
  }
  lockstep::load_best(trainer, options.run);
  ResultFile result(runtime, options.run + "/result.json");
  result.add("test perplexity", std::exp(mean_loss(trainer, model, corpus.test, options.length)));
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
