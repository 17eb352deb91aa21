// snapshot_ranks load|save: what snapshots cost a run of two ranks.
//   load   all ranks load the whole of a snapshot, whose digests they check between them; the bound
//   is
//          that each reads a plain file with the same bytes at the same time
//   save   ten updates of the LSTM language model, the first of which begins an asynchronous save
//   of
//          its weights and moments; the bound is ten updates without
#include <ATen/ATen.h>
#include <lockstep/checkpointing/snapshot/impl/writer.h>
#include <lockstep/checkpointing/snapshot/load.h>
#include <lockstep/checkpointing/snapshot/newest.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/trainer.h>

#include <ftw.h>

#include <cstdio>
#include <iostream>

#include "models.h"
#include "plain_file.h"
#include "recorder.h"

namespace lockstep::benchmarks {
namespace {

constexpr int tensors = 42, loads = 7, windows = 4, updates = 10;
constexpr int64_t side = 1024;

/// A folder of all ranks in /tmp, removed by rank 0 at the end.
class Scratch {
 public:
  explicit Scratch(Runtime& runtime) : control_(runtime.control()) {
    std::string path = "/tmp/lockstep_bench_XXXXXX";
    if (control_.rank() == 0) {
      LOCKSTEP_CHECK(mkdtemp(path.data()) != nullptr, "cannot make a folder in /tmp");
    }
    path_ = control_.all_gather_bytes(path)[0];
  }
  ~Scratch() {
    control_.barrier().wait();
    if (control_.rank() == 0) {
      nftw(
          path_.c_str(),
          [](const char* path, const struct stat*, int, struct FTW*) { return std::remove(path); },
          8, FTW_DEPTH | FTW_PHYS);
    }
  }
  const std::string& path() const { return path_; }

 private:
  Communicator control_;
  std::string path_;
};

Named make_tensors() {
  Named all;
  for (int i = 0; i < tensors; ++i) {
    all.emplace_back("layer" + std::to_string(i) + ".weight", at::randn({side, side}));
  }
  return all;
}

void measure_loads(Runtime& runtime) {
  const Scratch scratch(runtime);
  Communicator control = runtime.control();
  const Named targets = make_tensors();
  const PlainFile plain(scratch.path() + "/plain");
  snapshot::Content content;
  for (const auto& [name, tensor] : targets) {
    content.add("model", name, tensor);
  }
  const std::string path = snapshot::Writer(control, scratch.path() + "/run").save(content, 1).path;
  if (runtime.is_main()) {
    plain.write(targets);
  }
  Series ours("load 176 MB, 2 ranks", "ours");
  Series bound("load 176 MB, 2 ranks", "bound");
  const auto load = [&] {
    const snapshot::Opened opened = snapshot::open_verified(path, control);
    LOCKSTEP_CHECK(opened.snapshot, opened.failure);
    load_tensors(opened.snapshot->section("model"), targets);
  };
  load();  // not counted
  for (int turn = 0; turn < loads; ++turn) {
    control.barrier().wait();
    ours.begin();
    load();
    ours.end();
    control.barrier().wait();
    bound.begin();
    plain.read(targets);
    bound.end();
  }
  ours.write();
  bound.write();
}

void measure_updates(Runtime& runtime) {
  const Scratch scratch(runtime);
  const Workload workload = make_workload("lstm");
  Trainer trainer(
      runtime, workload.module, AdamW(1e-4),
      TrainerOptions().snapshots(
          SnapshotOptions().folder(scratch.path() + "/run").keep(KeepOptions().last(1))));
  const auto train = [&] {
    for (int update = 0; update < updates; ++update) {
      workload.next_batch();
      trainer.step([&] { return Loss(workload.loss()); });
    }
  };
  train();
  trainer.save();  // makes the memory for copies, which later saves use again
  trainer.finish_saving();
  Series ours("10 updates, one save", "ours");
  Series bound("10 updates, one save", "bound");
  for (int window = 0; window < windows; ++window) {
    bound.begin();
    train();
    bound.end();
    ours.begin();
    trainer.save();
    train();
    ours.end();
    trainer.finish_saving();
  }
  ours.write();
  bound.write();
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  const std::string what = argc == 2 ? argv[1] : "";
  if (what != "load" && what != "save") {
    std::cerr << "usage: " << argv[0] << " load|save\n";
    return 2;
  }
  return lockstep::run(argc, argv, [&](lockstep::Runtime& runtime) {
    using namespace lockstep::benchmarks;
    what == "load" ? measure_loads(runtime) : measure_updates(runtime);
  });
}
