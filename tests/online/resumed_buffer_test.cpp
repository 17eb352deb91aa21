// What a SampleBuffer has after it was saved on some ranks and resumed on others.
#include <gmock/gmock.h>
#include <lockstep/amp/optimizers.h>
#include <lockstep/inputs/sample_buffer.h>
#include <lockstep/runtime/trainer.h>
#include <mpi.h>
#include <torch/torch.h>

#include <algorithm>
#include <functional>

#include "runtime/temporary_folder.h"
#include "test_names.h"
#include "test_runtime.h"

namespace lockstep {
namespace {

const std::vector<at::Tensor> kLike = {at::zeros({}, at::kLong), at::zeros({2})};

std::vector<at::Tensor> sample(int64_t number, double value) {
  return {at::scalar_tensor(number, at::kLong), at::full({2}, value)};
}

/// Runs `body` on the first `ranks` ranks, which are all of its Runtime.
void on_ranks(int ranks, const std::function<void(Runtime&)>& body) {
  const int rank = runtime().rank();
  MPI_Comm part = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, rank < ranks ? 0 : MPI_UNDEFINED, rank, &part);
  if (part != MPI_COMM_NULL) {
    {
      Runtime guest(part, RuntimeOptions().device(DeviceKind::cpu).threads(1));
      body(guest);
    }
    MPI_Comm_free(&part);
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

struct Program {
  Program(Runtime& runtime, const std::string& folder)
      : buffer(runtime, kLike, SampleBufferOptions().capacity(4).batch_size(2)),
        trainer(runtime, model, SGD(0.1),
                TrainerOptions().snapshots(SnapshotOptions().folder(folder))) {
    buffer.save_in(trainer, "samples");
  }
  void save() {
    trainer.step([&] { return model->forward(at::ones({1, 2})).sum(); });
    trainer.save();
    trainer.finish_saving();
  }

  torch::nn::Linear model{2, 1};
  SampleBuffer buffer;
  Trainer trainer;
};

/// What a rank does to its buffer before the snapshot.
using Use = std::function<void(SampleBuffer&, int rank)>;

void save(int ranks, const std::string& folder, const Use& use) {
  on_ranks(ranks, [&](Runtime& part) {
    Program saved(part, folder);
    use(saved.buffer, part.rank());
    saved.save();
  });
}

/// The buffer has a sample already when it is resumed: it keeps that, and nothing of the snapshot.
void expect_as_it_was(int saved_ranks, int ranks, const std::string& folder) {
  on_ranks(ranks, [&](Runtime& part) {
    Program resumed(part, folder);
    resumed.buffer.push(sample(50, 0.5));
    const ResumeReport report = resumed.trainer.resume();
    EXPECT_TRUE(report.resumed);
    EXPECT_THAT(report.notes,
                Contains(HasSubstr("state(\"samples\") stays as it is: each of the " +
                                   std::to_string(saved_ranks) +
                                   " ranks of the saved run had a value of its own")));
    EXPECT_EQ(resumed.buffer.pushed(), 1);
    EXPECT_EQ(resumed.buffer.batches(), 0);
    EXPECT_FALSE(resumed.buffer.ready());
    resumed.buffer.push(sample(50, 0.5));
    const auto batch = resumed.buffer.batch();
    EXPECT_TRUE(at::equal(batch[0], at::full({2}, 50, at::kLong)));
    EXPECT_TRUE(at::equal(batch[1], at::full({2, 2}, 0.5)));
  });
}

/// The buffer has samples 1 to 3, and no batch was drawn.
void expect_restored(int ranks, const std::string& folder) {
  on_ranks(ranks, [&](Runtime& part) {
    Program resumed(part, folder);
    resumed.buffer.push(sample(50, 0.5));
    const ResumeReport report = resumed.trainer.resume();
    EXPECT_TRUE(report.resumed);
    EXPECT_THAT(report.notes, Not(Contains(HasSubstr("samples"))));
    EXPECT_EQ(resumed.buffer.pushed(), 3);
    EXPECT_EQ(resumed.buffer.batches(), 0);
    const auto batch = resumed.buffer.batch();
    EXPECT_TRUE(at::equal(batch[1].select(1, 0), batch[0].to(at::kFloat)));
    EXPECT_TRUE(batch[0].ge(1).logical_and(batch[0].le(3)).all().item<bool>());
  });
}

class ResumedBuffer : public ::testing::Test {
 protected:
  const std::string& folder() const { return folder_; }

 private:
  testing::TemporaryFolder own_;
  std::string folder_ = runtime().control().all_gather_bytes(own_.path()).front();
};

class FromTwoRanks : public ResumedBuffer {
 protected:
  void expect_nothing_restored(const Use& use) {
    save(2, folder(), use);
    for (const int ranks : {1, 3}) {
      expect_as_it_was(2, ranks, folder());
    }
  }
};

void push_three(SampleBuffer& buffer) {
  for (int64_t i = 1; i <= 3; ++i) {
    buffer.push(sample(i, static_cast<double>(i)));
  }
}

TEST_F(FromTwoRanks, CountsAreNotRestoredWithoutTheSamples) {
  expect_nothing_restored([](SampleBuffer& buffer, int rank) {
    for (int64_t i = 0; i < 4; ++i) {
      buffer.push(sample(10 * rank + i, rank));
    }
  });
}

TEST_F(FromTwoRanks, APartOfTheSamplesIsNotRestoredWithoutTheOthers) {
  expect_nothing_restored([](SampleBuffer& buffer, int rank) {
    for (int64_t i = 0; i < 4; ++i) {
      buffer.push(sample(i, rank));
    }
  });
}

TEST_F(FromTwoRanks, SamplesAreNotRestoredWithoutTheNumberOfPushes) {
  expect_nothing_restored([](SampleBuffer& buffer, int rank) {
    for (int64_t i = 0; i <= rank; ++i) {
      buffer.push(sample(0, 0.0));  // as the memory of an empty buffer
    }
  });
}

TEST_F(FromTwoRanks, SamplesAreNotRestoredWithoutTheNumberOfBatches) {
  expect_nothing_restored([](SampleBuffer& buffer, int rank) {
    push_three(buffer);
    if (rank == 1) {
      buffer.batch();
    }
  });
}

TEST_F(FromTwoRanks, EqualBuffersAreRestoredOnEveryRank) {
  save(2, folder(), [](SampleBuffer& buffer, int /*rank*/) { push_three(buffer); });
  for (const int ranks : {1, 2, 3}) {
    expect_restored(ranks, folder());
  }
}

TEST_F(ResumedBuffer, OfOneRankIsRestoredOnEveryRank) {
  save(1, folder(), [](SampleBuffer& buffer, int /*rank*/) { push_three(buffer); });
  expect_restored(3, folder());
}

}  // namespace
}  // namespace lockstep
