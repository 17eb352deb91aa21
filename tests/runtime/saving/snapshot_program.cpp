// A training program for tests that start, kill and resume whole processes:
//   snapshot_program RUN-FOLDER NEXT-FOLDER MICRO-BATCHES [sharded|shared] [offloaded]
//       [fp32-moments] [kill=RANK:CALL]
// Resumes from RUN-FOLDER and trains until the run has had so many micro-batches, saving each
// second update. With a NEXT-FOLDER other than RUN-FOLDER it saves there, also at once after
// resuming. kill=RANK:CALL ends that rank's process with SIGKILL in the middle of its CALL-th
// change of the disk. Adds the samples that it uses to NEXT-FOLDER.seen.RANK, a line "EPOCH SAMPLE"
// for each.
#include <csignal>
#include <cstdio>
#include <fstream>
#include <utility>

#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include "runtime/snapshot_runs.h"

namespace lockstep {
namespace {

using snapshot::FileSystem;
using snapshot::OutputFile;

/// The disk of this machine, until a call is reached.
class DeadlyFileSystem : public FileSystem {
 public:
  explicit DeadlyFileSystem(int64_t deadly_call) : deadly_call_(deadly_call) {}

  void make_folder(const std::string& path) override {
    count();
    real_->make_folder(path);
  }
  std::unique_ptr<OutputFile> create_file(const std::string& path, mode_t mode) override {
    count();
    return std::make_unique<File>(*this, real_->create_file(path, mode));
  }
  void rename(const std::string& from, const std::string& to) override {
    count();
    real_->rename(from, to);
  }
  void sync_folder(const std::string& path) override {
    count();
    real_->sync_folder(path);
  }
  void remove_file(const std::string& path) override {
    count();
    real_->remove_file(path);
  }
  void remove_folder(const std::string& path) override {
    count();
    real_->remove_folder(path);
  }

 private:
  struct File : OutputFile {
    File(DeadlyFileSystem& system, std::unique_ptr<OutputFile> real)
        : system(system), real(std::move(real)) {}
    void write(const void* data, size_t bytes) override {
      if (system.calls_ + 1 == system.deadly_call_) {
        real->write(data, bytes / 2);
      }
      system.count();
      real->write(data, bytes);
    }
    void sync() override {
      system.count();
      real->sync();
    }
    void close() override { real->close(); }
    DeadlyFileSystem& system;
    std::unique_ptr<OutputFile> real;
  };

  /// One thread at a time saves.
  void count() {
    if (++calls_ == deadly_call_) {
      std::raise(SIGKILL);
    }
  }

  std::shared_ptr<FileSystem> real_ = FileSystem::real();
  int64_t calls_ = 0;
  int64_t deadly_call_;
};

struct Arguments {
  std::string run;
  std::string next;
  int64_t micro_batches = 0;
  bool sharded = false;
  bool shared = false;     // share_weights too
  bool offloaded = false;  // offload_states
  MomentFormat moments = MomentFormat::bf16;
  int victim = -1;
  int64_t call = 0;

  static Arguments of(int argc, char** argv) {
    LOCKSTEP_CHECK(argc >= 4, "see the head of snapshot_program.cpp");
    Arguments arguments{argv[1], argv[2], std::stoll(argv[3])};
    for (int i = 4; i < argc; ++i) {
      if (std::string(argv[i]) == "sharded") {
        arguments.sharded = true;
      } else if (std::string(argv[i]) == "shared") {
        arguments.sharded = arguments.shared = true;
      } else if (std::string(argv[i]) == "offloaded") {
        arguments.offloaded = true;
      } else if (std::string(argv[i]) == "fp32-moments") {
        arguments.moments = MomentFormat::fp32;
      } else if (long long call = 0;
                 std::sscanf(argv[i], "kill=%d:%lld", &arguments.victim, &call) == 2) {
        arguments.call = call;
      } else {
        throw Error(c10::str("what is ", argv[i], "?"));
      }
    }
    return arguments;
  }
};

testing::Recipe recipe(const Arguments& arguments) {
  testing::Recipe recipe;
  recipe.samples = 120;
  recipe.batch_size = 2;
  recipe.optimizer = AdamW(1e-2).moments(arguments.moments).clone();
  recipe.options.precision(Precision::O2(at::kBFloat16).remainders())
      .ema(0.9)
      .shard_optimizer(arguments.sharded)
      .share_weights(arguments.shared)
      .offload_states(arguments.offloaded)
      .snapshots(SnapshotOptions().folder(arguments.next).min_shard_bytes(1));
  return recipe;
}

c10::Device device_of_this_rank(c10::kCPU);

void train(Runtime& runtime, const Arguments& arguments) {
  device_of_this_rank = runtime.device();
  const bool dies = runtime.rank() == arguments.victim;
  const snapshot::FileSystemScope scope(
      std::make_shared<DeadlyFileSystem>(dies ? arguments.call : 0));
  testing::TrainingRun run(runtime, recipe(arguments));
  run.trainer.resume(arguments.run);
  if (arguments.next != arguments.run) {
    run.trainer.save();
  }
  run.done = run.trainer.updates();
  std::ofstream seen(arguments.next + ".seen." + std::to_string(runtime.rank()), std::ios::app);
  while (run.done < arguments.micro_batches) {
    run.seen.clear();
    run.train_to(run.done + 1);
    for (const int64_t sample : run.seen) {
      seen << run.loader.epoch() << " " << sample << "\n";
    }
    if (run.done % 2 == 0 || run.done == arguments.micro_batches) {
      run.trainer.save();
    }
  }
}

}  // namespace

c10::Device testing::device() {
  return device_of_this_rank;
}

}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run(argc, argv, [&](lockstep::Runtime& runtime) {
    lockstep::train(runtime, lockstep::Arguments::of(argc, argv));
  });
}
