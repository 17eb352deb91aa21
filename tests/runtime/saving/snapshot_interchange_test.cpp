// Weights of a Trainer in Python, and Python's in a Trainer.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/safetensors_writer.h>
#include <lockstep/runtime/trainer.h>

#include "checkpointing/snapshot_python.h"
#include "runtime/models.h"
#include "runtime/temporary_folder.h"
#include "test_names.h"

namespace lockstep {
namespace {

constexpr char kModel[] = R"(
import json, torch
from safetensors.torch import load_file, save_file
torch.set_num_threads(1)
class Mlp(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 8), torch.nn.Linear(8, 2)
    def forward(self, x):
        return self.second(torch.tanh(self.first(x)))
model = Mlp()
)";

TEST(SnapshotInterchange, PythonsModelWithOurWeightsGivesOurOutputsAndBack) {
  const testing::TemporaryFolder folder;
  Runtime runtime = Runtime::solo(RuntimeOptions().threads(1));
  const auto model = std::make_shared<Mlp>();
  Trainer trainer(runtime, model, AdamW(1e-2));
  trainer.resume(folder.file("run"));
  const at::Tensor x = at::randn({5, 4});
  for (int step = 0; step < 3; ++step) {
    trainer.step([&] { return model->loss(x, at::zeros({5, 2})); });
  }
  trainer.save();
  trainer.finish_saving();
  snapshot::save_safetensors(folder.file("io"), {{"x", x}, {"y", model->forward(x).detach()}});
  testing::expect_python(folder.path(), std::string(kModel) + R"(
model.load_state_dict(load_file("run/step-000000000003/model.safetensors"), strict=True)
io = load_file("io")
assert torch.equal(model(io["x"]), io["y"])
state = {"net." + name: value.detach() * 2 for name, value in model.state_dict().items()}
names = sorted(state)
weight_map = {}
for shard, part in enumerate((names[:2], names[2:])):
    file = f"model-{shard + 1:05}-of-00002.safetensors"
    save_file({name: state[name] for name in part}, file)
    weight_map.update({name: file for name in part})
json.dump({"metadata": {}, "weight_map": weight_map}, open("model.safetensors.index.json", "w"))
)");
  const at::Tensor bias = model->second->bias.detach().clone();
  snapshot::LoadOptions options;
  options.name_in_source = [](const std::string& name) { return "net." + name; };
  const auto report = trainer.load_weights(folder.file("model.safetensors.index.json"), options);
  EXPECT_TRUE(report.is_complete()) << report.text();
  EXPECT_TRUE(at::equal(model->second->bias, bias * 2));
}

}  // namespace
}  // namespace lockstep
