// GPT-2 with its byte pairs: trains on a text, from random or published weights, and writes.
//
//   lockstep run -n 2 -- build/examples/10_gpt2 --tokenizer gpt2-tokenizer --text input.txt
//       [--weights model.safetensors] [--activations "2 GiB"] [--precision O1] [--resume] ...
//   build/examples/10_gpt2 --tokenizer gpt2-tokenizer --weights model.safetensors --prompt "Alan
//   Turing"
//
// --tokenizer takes the folder of the published encoder.json and vocab.bpe, --weights
// model.safetensors of https://huggingface.co/openai-community/gpt2 (124 million parameters; other
// sizes with --layers, --width, --heads). The last tenth of the text is held out. It ends with the
// perplexity of it, in runs/gpt2/result.json, and a text that begins with --prompt.

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

#include <fstream>
#include <iostream>
#include <iterator>

#include "byte_pairs.h"
#include "command_line.h"
#include "gpt2_options.h"
#include "models/gpt2.h"
#include "result_file.h"
#include "run_options.h"

namespace {

/// Stretches of a text and, for each token, the next one: two int64 tensors, [length].
struct Stretches {
  torch::Tensor tokens;
  int64_t length;

  size_t size() const { return static_cast<size_t>((tokens.size(0) - 1) / length); }
  std::pair<torch::Tensor, torch::Tensor> get(size_t index) const {
    const int64_t begin = static_cast<int64_t>(index) * length;
    return {tokens.narrow(0, begin, length), tokens.narrow(0, begin + 1, length)};
  }
};

/// The text but its last tenth, and that.
std::pair<Stretches, Stretches> read_text(const BytePairs& pairs, const std::string& path,
                                          int64_t length) {
  std::ifstream file(path, std::ios::binary);
  LOCKSTEP_CHECK_CODE(file.good(), lockstep::ExitCode::data, path,
                      ": cannot be opened; --text takes any text, such as "
                      "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/"
                      "tinyshakespeare/input.txt");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const torch::Tensor tokens = torch::tensor(pairs.encode(text), torch::kLong);
  const int64_t held_out = tokens.size(0) / 10;
  LOCKSTEP_CHECK_CODE(held_out > length, lockstep::ExitCode::data, path, ": has ", tokens.size(0),
                      " tokens, expected more than ", 10 * (length + 1),
                      "; choose a smaller --length");
  return {{tokens.narrow(0, 0, tokens.size(0) - held_out), length},
          {tokens.narrow(0, tokens.size(0) - held_out, held_out), length}};
}

void train(lockstep::Runtime& runtime, const Options& options, Gpt2& model,
           const BytePairs& pairs) {
  const auto [text, held_out] =
      read_text(pairs, options.text, options.length > 0 ? options.length : options.size.context);
  auto loader = runtime.loader(
      text, lockstep::LoaderOptions()
                .batch_size(std::max<int64_t>(1, options.batch_size / runtime.size()))
                .shuffle(true)
                .drop_last(true));
  const auto test_loader =
      runtime.validation_loader(held_out, lockstep::LoaderOptions().batch_size(4));
  const int64_t steps = options.run.epochs * loader.batches_per_epoch();
  lockstep::TrainerOptions trainer_options;
  trainer_options.precision(precision_of(options.precision))
      .clip_grad_norm(1.0)
      .schedule(lockstep::WarmupCosine(steps / 20, steps, 0.1))
      .snapshots(options.run.snapshots());
  if (!options.activations.empty()) {
    trainer_options.activation_budget(options.activations);
  }
  if (options.local_updates > 0) {
    trainer_options.local_updates(lockstep::LocalUpdates::diloco(options.local_updates));
  }
  lockstep::Trainer trainer(
      runtime, model,
      lockstep::AdamW(options.learning_rate).weight_decay(0.1).no_decay_on_norms_and_biases(),
      trainer_options);
  std::cout << runtime.summary() << trainer.summary() << std::flush;

  const auto step = [&](const auto& batch) {
    return trainer.step([&] {
      const auto [tokens, next] = trainer.to_device(batch);
      return torch::nn::functional::cross_entropy(model->forward(tokens).flatten(0, 1),
                                                  next.flatten());
    });
  };
  const auto test = [&] {
    return lockstep::evaluate(trainer, model, test_loader, lockstep::Perplexity());
  };
  lockstep::train_epochs(trainer, loader, options.run.training(), step, test);
  lockstep::load_best(trainer, options.run.run);
  ResultFile result(runtime, options.run.run + "/result.json");
  result.add("held-out perplexity", test()["perplexity"]);
  result.add("updates", static_cast<double>(trainer.updates()));
  result.write();
}

void train_and_write(lockstep::Runtime& runtime, Options options) {
  LOCKSTEP_CHECK(!options.text.empty() || !options.weights.empty(),
                 "nothing to do: name a --text to train on, or --weights to write with");
  const BytePairs pairs(options.tokenizer + "/encoder.json", options.tokenizer + "/vocab.bpe");
  options.size.vocabulary = pairs.size();
  Gpt2 model(options.size);
  if (!options.weights.empty()) {
    load_gpt2(model, options.weights);
  }
  model->to(runtime.device());
  if (!options.text.empty()) {
    train(runtime, options, model, pairs);
  }
  if (runtime.is_main()) {
    model->to(torch::kFloat);
    std::cout << pairs.decode(
                     sample(model, pairs.encode(options.prompt), options.tokens, options.sampling))
              << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains GPT-2, and writes text.");
  add_options(app, options);
  if (const auto code = parse(app, argc, argv)) {
    return *code;
  }
  return lockstep::run(argc, argv,
                       [&](lockstep::Runtime& runtime) { train_and_write(runtime, options); });
}
