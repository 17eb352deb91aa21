// What docs/snapshot-format.md says of snapshots that ranks wrote in several files.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/safetensors_writer.h>

#include <string>
#include <utility>
#include <vector>

#include "checkpointing/snapshot_python.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {
namespace {

/// What docs/snapshot-format.md says that Python types, word for word, on a snapshot whose weights
/// are in as many files as there are ranks; and what lockstep export makes of it.
TEST(SnapshotDocument, PythonReadsTheWeightsAsTheDocumentSays) {
  const SharedFolder folder;
  Recipe recipe;
  recipe.options.precision(Precision::O2(at::kBFloat16))
      .shard_optimizer(true)
      .snapshots(SnapshotOptions().min_shard_bytes(1).asynchronous(false));
  TrainingRun run(runtime(), recipe);
  run.trainer.resume(folder.file("run"));
  run.train_to(2);
  run.trainer.save();
  const auto masters = run.trainer.masters();
  if (runtime().is_main()) {
    std::vector<std::pair<std::string, at::Tensor>> expected = masters;
    expected.emplace_back("norm.running_mean", run.model->norm->running_mean);
    const std::string saved = step_path(folder.file("run"), 2);
    snapshot::save_safetensors(saved + "/expected", expected);
    testing::expect_python(saved,
                           c10::str("RANKS = ", runtime().size(), R"(
import os, re, subprocess, torch
from safetensors.torch import load_file as load_one
text = open(")",
                                    LOCKSTEP_SNAPSHOT_DOCUMENT, R"(").read()
blocks = [block for block in re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S)]
assert len(blocks) == 1, blocks
exec(blocks[0])
weights = load_weights(".")
for name, tensor in load_one("expected").items():
    assert torch.equal(weights[name], tensor), name
assert torch.equal(weights["tied"], weights["middle.weight"])
subprocess.run([")",
                                    LOCKSTEP_COMMAND, R"(", "export", ".", "one"], check=True)
exported = load_one("one")
assert exported.keys() | {"tied", "middle.weight"} == weights.keys()
assert all(torch.equal(weights[name], tensor) for name, tensor in exported.items())
assert os.path.exists("model.safetensors") == (RANKS == 1)
assert os.path.exists("model.safetensors.index.json") == (RANKS > 1)
)"));
  }
  testing::meet();
}

}  // namespace
}  // namespace lockstep
