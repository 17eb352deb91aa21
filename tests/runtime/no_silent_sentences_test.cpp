// Sentences of README and docs that programs from outside found to be false: a dtype that is slow
// on this processor, and weights that ranks wrote in several files.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/safetensors_writer.h>
#include <lockstep/runtime/process/slow_dtype_notice.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include "checkpointing/snapshot_python.h"
#include "snapshot_runs.h"
#include "trainer_runs.h"

namespace lockstep {

using namespace detail;

namespace {

using ::testing::AllOf;
using testing::error_of;
using ::testing::HasSubstr;
using testing::Mlp;
using testing::Recipe;
using testing::runtime;
using testing::SharedFolder;
using testing::step_path;
using testing::TrainingRun;

/// The process's notice, with made-up times, and what it printed.
struct MadeUpTimes {
  explicit MadeUpTimes(double slowdown) {
    SlowDtypeNotice::of_process().replace(
        [this, slowdown](c10::ScalarType) {
          ++measured;
          return amp::ComputeSpeed{1e-3, 1e-3, slowdown * 1e-3, 1e-3};
        },
        out);
  }
  ~MadeUpTimes() {
    SlowDtypeNotice::of_process().replace(
        [](c10::ScalarType) {
          return amp::ComputeSpeed{1, 1, 1, 1};
        },
        std::cerr);
  }
  void make_trainer(const Precision& precision) const {
    Trainer(runtime(), std::make_shared<Mlp>(), AdamW(1e-2), TrainerOptions().precision(precision));
  }
  int64_t lines() const {
    const std::string text = out.str();
    return std::count(text.begin(), text.end(), '\n');
  }

  int measured = 0;
  std::ostringstream out;
};

TEST(NoSilentResult, N14_ASlowDtypeIsSaidOnceByRankZero) {
  MadeUpTimes times(70);
  times.make_trainer(Precision::O0().wire(at::kHalf));
  EXPECT_EQ(times.measured, 0) << "O0 computes in fp32";
  for (const Precision& precision : {Precision::O1(), Precision::O2(), Precision::O3()}) {
    times.make_trainer(precision);
  }
  EXPECT_EQ(times.measured, runtime().is_main() ? 1 : 0);
  EXPECT_EQ(times.lines(), runtime().is_main() ? 1 : 0) << times.out.str();
  if (runtime().is_main()) {
    EXPECT_THAT(times.out.str(),
                AllOf(HasSubstr("lockstep: fp16 is slow on this processor"),
                      HasSubstr("convolution 70.0 times as long"), HasSubstr("wire(torch::kHalf)"),
                      HasSubstr("LOCKSTEP_PROBE_DTYPE=0 silences this")));
  }
  times.make_trainer(Precision::O2(at::kBFloat16));
  EXPECT_EQ(times.lines(), runtime().is_main() ? 2 : 0) << "another dtype";
}

TEST(NoSilentResult, N14_AFastDtypeIsNotSpokenOf) {
  MadeUpTimes times(4.9);
  times.make_trainer(Precision::O2());
  EXPECT_EQ(times.out.str(), "");
}

TEST(NoSilentResult, N14_TheProbeOfTheDtypeCanBeSwitchedOff) {
  MadeUpTimes times(70);
  setenv("LOCKSTEP_PROBE_DTYPE", "0", 1);
  times.make_trainer(Precision::O2());
  setenv("LOCKSTEP_PROBE_DTYPE", "no", 1);
  EXPECT_THAT(error_of([&] { times.make_trainer(Precision::O2()); }),
              HasSubstr("LOCKSTEP_PROBE_DTYPE=no is not a whole number from 0 to 1"));
  unsetenv("LOCKSTEP_PROBE_DTYPE");
  EXPECT_EQ(times.measured, 0);
  EXPECT_EQ(times.out.str(), "");
}

/// What docs/snapshot-format.md says that Python types, word for word, on a snapshot whose weights
/// are in as many files as there are ranks; and what lockstep export makes of it.
TEST(NoSilentResult, N14_PythonReadsTheWeightsAsTheDocumentSays) {
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
