// A language model on bytes: Trainer with warm-up and gradient clipping.
//
//   lockstep run -n 2 -- build/examples/04_byte_gpt [--text FILE] [--steps 200] ...
//
// Without --text it learns sums that the program writes itself: "17+25=42;". Expected on 2 ranks,
// after a progress bar (it learns how sums look before it learns to add):
//   bits per byte 0.35, 8 before training
//   12+34=123;12+45=124;12+46=125;12+47=126;12+48=

#include <lockstep/lockstep.h>

#include <fstream>
#include <iostream>
#include <iterator>
#include <optional>

#include "byte_gpt.h"
#include "command_line.h"

namespace {

struct Options {
  std::string text;
  int64_t steps = 200;
  int64_t batch_size = 16;
  GptSize size;
};

std::string sums() {
  std::string text;
  for (int a = 0; a < 100; ++a) {
    for (int b = 0; b < 100; ++b) {
      text += std::to_string(a) + "+" + std::to_string(b) + "=" + std::to_string(a + b) + ";";
    }
  }
  return text;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  LOCKSTEP_CHECK_CODE(file.good(), lockstep::ExitCode::data, path, ": cannot be opened");
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Every stretch of `length` + 1 bytes that starts at a multiple of 16.
struct Stretches {
  torch::Tensor bytes;
  int64_t length;

  Stretches(const std::string& text, int64_t context) : length(context) {
    LOCKSTEP_CHECK_CODE(static_cast<int64_t>(text.size()) > context, lockstep::ExitCode::data,
                        "the text has ", text.size(), " bytes, expected more than ", context);
    bytes = torch::tensor(std::vector<uint8_t>(text.begin(), text.end()), torch::kLong);
  }
  size_t size() const { return static_cast<size_t>((bytes.numel() - length - 1) / 16 + 1); }
  torch::Tensor get(size_t index) const {
    return bytes.narrow(0, 16 * static_cast<int64_t>(index), length + 1);
  }
};

void train(lockstep::Runtime& runtime, const Options& options) {
  const Stretches stretches(options.text.empty() ? sums() : read_text(options.text),
                            options.size.context);
  auto loader = runtime.loader(
      stretches,
      lockstep::LoaderOptions().batch_size(options.batch_size).shuffle(true).epochs(options.steps));
  ByteGpt model(options.size);
  lockstep::Trainer trainer(runtime, model, lockstep::AdamW(3e-3).no_decay_on_norms_and_biases(),
                            lockstep::TrainerOptions().clip_grad_norm(1.0).schedule(
                                lockstep::WarmupCosine(options.steps / 10, options.steps)));

  double bits = 0.0;
  auto progress = std::make_optional<lockstep::Progress>("train", options.steps, runtime.is_main());
  for (auto& batch : loader) {
    const lockstep::StepReport report = trainer.step([&] {
      const torch::Tensor text = trainer.to_device(batch);
      const torch::Tensor scores = model->forward(text.narrow(1, 0, options.size.context));
      return torch::nn::functional::cross_entropy(
          scores.flatten(0, 1), text.narrow(1, 1, options.size.context).flatten());
    });
    bits = report.loss() / std::log(2.0);
    progress->show(report.update(), {{"bits per byte", bits}, {"grad norm", report.grad_norm()}});
    if (report.update() == options.steps) {
      break;
    }
  }
  progress.reset();
  LOCKSTEP_CHECK(trainer.replicas_agree(), "the ranks' weights differ");
  LOCKSTEP_CHECK(bits < 8.0, "nothing was learned: ", bits, " bits per byte, expected below 8");
  if (runtime.is_main()) {
    std::cout << "bits per byte " << lockstep::format_number(bits) << ", 8 before training\n"
              << write_on(model, "12+34=", 40, options.size.context) << std::endl;
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Trains a byte-level GPT.");
  app.add_option("--text", options.text, "Any file; default: sums");
  app.add_option("--steps", options.steps)->check(CLI::PositiveNumber)->capture_default_str();
  app.add_option("--batch-size", options.batch_size, "Of each rank")->check(CLI::PositiveNumber);
  app.add_option("--layers", options.size.layers)->check(CLI::PositiveNumber);
  app.add_option("--width", options.size.width)->check(CLI::PositiveNumber);
  app.add_option("--context", options.size.context)->check(CLI::PositiveNumber);
  if (const auto code = parse(app, argc, argv)) {
    return *code;
  }
  return lockstep::run(argc, argv, [&](lockstep::Runtime& runtime) { train(runtime, options); });
}
