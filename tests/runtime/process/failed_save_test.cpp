// What a program ends with whose last snapshot could not be saved.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/trainer.h>
#include <torch/nn/modules/linear.h>

#include <cstring>

#include "runtime/temporary_folder.h"
#include "test_names.h"

namespace lockstep {
namespace {

/// A disk that is full while `full` is true.
class Disk final : public snapshot::FileSystem {
 public:
  bool full = false;

  void make_folder(const std::string& path) override { real_->make_folder(path); }
  std::unique_ptr<snapshot::OutputFile> create_file(const std::string& path, mode_t mode) override {
    LOCKSTEP_CHECK_CODE(!full, ExitCode::snapshot, path, ": ", std::strerror(ENOSPC));
    return real_->create_file(path, mode);
  }
  void rename(const std::string& from, const std::string& to) override { real_->rename(from, to); }
  void sync_folder(const std::string& path) override { real_->sync_folder(path); }
  void remove_file(const std::string& path) override { real_->remove_file(path); }
  void remove_folder(const std::string& path) override { real_->remove_folder(path); }

 private:
  std::shared_ptr<snapshot::FileSystem> real_ = snapshot::FileSystem::real();
};

/// The exit code and the messages of a program that saves after each update; the disk is full at
/// the saves that `full` names.
std::pair<int, std::string> program(bool asynchronous, const std::vector<bool>& full,
                                    bool catches = false) {
  const TemporaryFolder folder;
  const auto disk = std::make_shared<Disk>();
  const snapshot::FileSystemScope scope(disk);
  ::testing::internal::CaptureStderr();
  const int code = run(0, nullptr, [&](Runtime& runtime) {
    torch::nn::Linear model(2, 1);
    const auto options = SnapshotOptions().folder(folder.file("run")).asynchronous(asynchronous);
    Trainer trainer(runtime, model.ptr(), SGD(0.1), TrainerOptions().snapshots(options));
    for (const bool is_full : full) {
      trainer.step([&] { return model->forward(at::ones({1, 2})).sum(); });
      trainer.finish_saving();
      disk->full = is_full;
      try {
        trainer.save();
      } catch (const Error&) {
        if (!catches) {
          throw;
        }
      }
    }
  });
  return {code, ::testing::internal::GetCapturedStderr()};
}

TEST(FailedSave, OfAnAsynchronousSnapshotAtTheEndIsTheExitCode) {
  const auto [code, text] = program(/*asynchronous=*/true, {false, true});
  EXPECT_EQ(code, static_cast<int>(ExitCode::snapshot));
  EXPECT_THAT(text, HasSubstr("its last snapshot is not on the disk"));
  EXPECT_THAT(text, HasSubstr("No space left on device"));
}

TEST(FailedSave, OfASynchronousSnapshotThatTheProgramCaughtIsTheExitCode) {
  EXPECT_EQ(program(/*asynchronous=*/false, {true}, /*catches=*/true).first,
            static_cast<int>(ExitCode::snapshot));
}

TEST(FailedSave, IsMadeGoodByALaterSave) {
  EXPECT_EQ(program(/*asynchronous=*/true, {true, false}).first, 0);
  EXPECT_EQ(program(/*asynchronous=*/false, {true, false}, /*catches=*/true).first, 0);
}

}  // namespace
}  // namespace lockstep
