// A snapshot of a model with weights tied by assignment, read by Python's tied model.
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/safetensors_writer.h>
#include <lockstep/runtime/trainer.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "checkpointing/snapshot_python.h"
#include "runtime/temporary_folder.h"

namespace lockstep {
namespace {

struct Tied : torch::nn::Module {
  Tied() {
    encoder = register_module("encoder", torch::nn::Embedding(9, 4));
    decoder = register_module("decoder", torch::nn::Linear(4, 9));
    decoder->weight = encoder->weight;
  }
  at::Tensor forward(const at::Tensor& words) { return decoder->forward(encoder->forward(words)); }
  torch::nn::Embedding encoder{nullptr};
  torch::nn::Linear decoder{nullptr};
};

TEST(TiedWeights, PythonsTiedModelLoadsOurTiedWeights) {
  const testing::TemporaryFolder folder;
  Runtime runtime = Runtime::solo(RuntimeOptions().threads(1));
  const auto model = std::make_shared<Tied>();
  Trainer trainer(runtime, model, AdamW(1e-2));
  trainer.resume(folder.file("run"));
  const at::Tensor words = at::arange(9);
  for (int step = 0; step < 3; ++step) {
    trainer.step([&] { return model->forward(words).square().mean(); });
  }
  trainer.save();
  trainer.finish_saving();
  snapshot::save_safetensors(folder.file("io"), {{"y", model->forward(words).detach()}});
  testing::expect_python(folder.path(), R"(
import json, torch
from safetensors.torch import load_file, load_model
torch.set_num_threads(1)
class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = torch.nn.Embedding(9, 4), torch.nn.Linear(4, 9)
        self.decoder.weight = self.encoder.weight
    def forward(self, words):
        return self.decoder(self.encoder(words))
expected, run = load_file("io")["y"], "run/step-000000000003/"
model = Tied()
load_model(model, run + "model.safetensors")
assert torch.equal(model(torch.arange(9)), expected)
weights = load_file(run + "model.safetensors")
for name, stored in json.load(open(run + "manifest.json"))["tied"]["model"].items():
    weights[name] = weights[stored]
model = Tied()
model.load_state_dict(weights, strict=True)
assert torch.equal(model(torch.arange(9)), expected)
)");
}

}  // namespace
}  // namespace lockstep
