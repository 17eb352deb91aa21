// What a SampleBuffer keeps and draws, and that a resumed run draws the same.
#include <gmock/gmock.h>
#include <lockstep/amp/optimizers.h>
#include <lockstep/inputs/sample_buffer.h>
#include <lockstep/runtime/trainer.h>
#include <torch/torch.h>

#include <algorithm>
#include <map>
#include <set>

#include "error_of.h"
#include "odd_tensors.h"
#include "runtime/temporary_folder.h"
#include "test_names.h"
#include "test_runtime.h"

namespace lockstep {
namespace {

const std::vector<at::Tensor> kLike = {at::zeros({}, at::kLong), at::zeros({2})};

std::vector<at::Tensor> sample(int64_t number) {
  return {at::scalar_tensor(number, at::kLong), at::full({2}, static_cast<double>(number))};
}

std::vector<int64_t> numbers(const at::Tensor& tensor) {
  return {tensor.data_ptr<int64_t>(), tensor.data_ptr<int64_t>() + tensor.numel()};
}

SampleBufferOptions options(SamplePolicy policy, int64_t capacity, int64_t batch_size) {
  return SampleBufferOptions().policy(policy).capacity(capacity).batch_size(batch_size);
}

std::vector<int64_t> all_kept(SampleBuffer& buffer) {
  std::vector<int64_t> kept = numbers(buffer.batch()[0]);
  std::sort(kept.begin(), kept.end());
  return kept;
}

TEST(SampleBuffer, ARingKeepsTheNewestAndDrawsDifferentOnes) {
  SampleBuffer buffer(runtime(), kLike, options(SamplePolicy::ring, 4, 4));
  for (int64_t i = 0; i < 7; ++i) {
    EXPECT_EQ(buffer.ready(), i >= 4);
    EXPECT_EQ(buffer.size(), std::min<int64_t>(i, 4));
    buffer.push(sample(i));
  }
  for (int round = 0; round < 5; ++round) {
    EXPECT_THAT(all_kept(buffer), ::testing::ElementsAre(3, 4, 5, 6));
  }
  EXPECT_EQ(buffer.pushed(), 7);
  EXPECT_EQ(buffer.batches(), 5);
  const auto batch = buffer.batch();
  EXPECT_EQ(batch[1].sizes(), (std::vector<int64_t>{4, 2}));
  EXPECT_TRUE(at::equal(batch[1].select(1, 1), batch[0].to(at::kFloat)));
}

TEST(SampleBuffer, KeepsEveryKindOfTensor) {
  std::vector<std::vector<at::Tensor>> samples = {{at::scalar_tensor(0, at::kLong)},
                                                  {at::scalar_tensor(1, at::kLong)}};
  for (const at::ScalarType dtype : {at::kBool, at::kByte, at::kHalf, at::kBFloat16, at::kInt,
                                     at::kDouble, at::kComplexDouble}) {
    for (const std::vector<int64_t>& sizes :
         std::vector<std::vector<int64_t>>{{}, {3}, {2, 0}, {5, 2}}) {
      samples[0].push_back(at::ones(sizes, dtype));
      samples[1].push_back(at::arange(samples[0].back().numel()).view(sizes).to(dtype));
    }
  }
  SampleBuffer buffer(runtime(), samples[0], options(SamplePolicy::ring, 2, 2));
  buffer.push(samples[0]);
  buffer.push(samples[1]);
  const auto batch = buffer.batch();
  ASSERT_EQ(batch.size(), samples[0].size());
  for (int64_t row = 0; row < 2; ++row) {
    const auto& drawn = samples[static_cast<size_t>(batch[0][row].item<int64_t>())];
    for (size_t i = 0; i < drawn.size(); ++i) {
      EXPECT_EQ(batch[i].scalar_type(), drawn[i].scalar_type());
      EXPECT_TRUE(at::equal(batch[i][row], drawn[i])) << drawn[i].toString() << drawn[i].sizes();
    }
  }
}

TEST(SampleBuffer, EachSampleIsDrawnAboutAsOften) {
  for (const SamplePolicy policy : {SamplePolicy::ring, SamplePolicy::replay}) {
    SampleBuffer buffer(runtime(), kLike, options(policy, 8, 3));
    for (int64_t i = 0; i < 8; ++i) {
      buffer.push(sample(i));
    }
    std::map<int64_t, int> counts;
    for (int draw = 0; draw < 1600; ++draw) {
      for (const int64_t number : numbers(buffer.batch()[0])) {
        ++counts[number];
      }
    }
    for (int64_t i = 0; i < 8; ++i) {  // 600 expected, deviation 23
      EXPECT_NEAR(counts[i], 600, 120) << i;
    }
  }
}

TEST(SampleBuffer, AReservoirKeepsEachSampleWithTheSameProbability) {
  std::map<int64_t, int> counts;
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Runtime solo = Runtime::solo(RuntimeOptions().seed(seed).device(DeviceKind::cpu));
    SampleBuffer buffer(solo, kLike, options(SamplePolicy::reservoir, 5, 5));
    for (int64_t i = 0; i < 20; ++i) {
      buffer.push(sample(i));
    }
    const auto kept = all_kept(buffer);
    EXPECT_EQ(std::set<int64_t>(kept.begin(), kept.end()).size(), 5U);
    for (const int64_t number : kept) {
      ++counts[number];
    }
  }
  for (int64_t i = 0; i < 20; ++i) {  // 100 expected, deviation 9
    EXPECT_NEAR(counts[i], 100, 45) << i;
  }
}

TEST(SampleBuffer, ReplayDrawsMoreThanItHas) {
  SampleBuffer buffer(runtime(), kLike, options(SamplePolicy::replay, 2, 16));
  EXPECT_FALSE(buffer.ready());
  buffer.push(sample(5));
  EXPECT_TRUE(buffer.ready());
  EXPECT_THAT(numbers(buffer.batch()[0]), ::testing::Each(5));
  buffer.push(sample(6));
  buffer.push(sample(7));
  EXPECT_THAT(numbers(buffer.batch()[0]), ::testing::IsSupersetOf({6, 7}));
}

TEST(SampleBuffer, IsDeterministicAndDiffersBetweenRanks) {
  const auto drawn = [](const Runtime& by) {
    SampleBuffer buffer(by, kLike, options(SamplePolicy::reservoir, 16, 8));
    std::vector<int64_t> all;
    for (int64_t i = 0; i < 64; ++i) {
      buffer.push(sample(i));
      if (buffer.ready()) {
        const auto batch = numbers(buffer.batch()[0]);
        all.insert(all.end(), batch.begin(), batch.end());
      }
    }
    return all;
  };
  const at::Tensor before = at::detail::getDefaultCPUGenerator().get_state().clone();
  const auto mine = drawn(runtime());
  EXPECT_EQ(mine, drawn(runtime()));
  EXPECT_TRUE(at::equal(at::detail::getDefaultCPUGenerator().get_state(), before));
  const std::string bytes(reinterpret_cast<const char*>(mine.data()),
                          mine.size() * sizeof(int64_t));
  const auto all = runtime().control().all_gather_bytes(bytes);
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size());
}

TEST(SampleBuffer, HasABoundInBytes) {
  const auto bytes = SampleBufferOptions().capacity_bytes(100);
  EXPECT_EQ(SampleBuffer(runtime(), kLike, bytes).capacity(), 6);  // 16 bytes each
  EXPECT_EQ(SampleBuffer(runtime(), kLike, SampleBufferOptions(bytes).capacity(3)).capacity(), 3);
}

TEST(SampleBuffer, RefusesWhatDoesNotFit) {
  const auto refusal = [&](const SampleBufferOptions& wrong) {
    return error_of([&] { const SampleBuffer buffer(runtime(), kLike, wrong); });
  };
  EXPECT_THAT(refusal(SampleBufferOptions().capacity(0)), HasSubstr("capacity is 0"));
  EXPECT_THAT(refusal(SampleBufferOptions().capacity_bytes(15)), HasSubstr("has 16 bytes"));
  EXPECT_THAT(refusal(options(SamplePolicy::ring, 4, 5)), HasSubstr("batch_size is 5"));
  EXPECT_THAT(refusal(SampleBufferOptions().batch_size(0)), HasSubstr("batch_size is 0"));
  EXPECT_THAT(error_of([] { const SampleBuffer buffer(runtime(), {}); }), HasSubstr("a tensor"));

  SampleBuffer buffer(runtime(), kLike, options(SamplePolicy::ring, 4, 2));
  EXPECT_THAT(error_of([&] { buffer.push({at::zeros({}, at::kLong)}); }), HasSubstr("2 tensors"));
  EXPECT_THAT(error_of([&] {
                buffer.push({at::zeros({}), at::zeros({2})});
              }),
              HasSubstr("part 0 of the sample is"));
  EXPECT_THAT(error_of([&] {
                buffer.push({at::zeros({}, at::kLong), at::zeros({3})});
              }),
              HasSubstr("[3]; expected Float [2]"));
  EXPECT_THAT(error_of([&] { buffer.batch(); }), HasSubstr("needs 2 samples, the buffer has 0"));
  EXPECT_EQ(buffer.pushed(), 0);
}

/// A simulation whose samples depend on its step only, with a model that learns from the buffer.
class Simulation {
 public:
  Simulation(const std::string& folder, const SampleBufferOptions& kept)
      : buffer_(runtime(), kLike, kept),
        trainer_(runtime(), model_, SGD(0.1),
                 TrainerOptions().snapshots(SnapshotOptions().folder(folder))) {
    buffer_.save_in(trainer_, "samples");
  }
  void steps(int64_t from, int64_t to) {
    for (int64_t step = from; step < to; ++step) {
      buffer_.push(sample(step + 100 * runtime().rank()));
      if (step >= 4) {
        batches_.push_back(buffer_.batch());
        trainer_.step(batches_.back(), [&](const std::vector<at::Tensor>& batch) {
          ++forwards_;
          return model_->forward(batch[1] / 100).square().mean();
        });
      }
    }
  }
  Trainer& trainer() { return trainer_; }
  SampleBuffer& buffer() { return buffer_; }
  std::vector<int64_t> drawn(size_t batch) const { return numbers(batches_.at(batch)[0]); }
  size_t batches() const { return batches_.size(); }
  size_t forwards() const { return forwards_; }
  at::Tensor weight() const { return model_->weight.detach().clone(); }

 private:
  torch::nn::Linear model_ = [] {
    torch::manual_seed(3);
    return torch::nn::Linear(2, 1);
  }();
  SampleBuffer buffer_;
  Trainer trainer_;
  std::vector<std::vector<at::Tensor>> batches_;
  size_t forwards_ = 0;
};

TEST(SampleBuffer, AResumedRunDrawsTheSameBatches) {
  const testing::TemporaryFolder own;
  const std::string folder = runtime().control().all_gather_bytes(own.path()).front();
  for (const SamplePolicy policy :
       {SamplePolicy::ring, SamplePolicy::reservoir, SamplePolicy::replay}) {
    const std::string runs = folder + "/" + std::to_string(static_cast<int>(policy));
    Simulation whole("", options(policy, 6, 3));
    whole.steps(0, 20);
    {
      Simulation killed(runs, options(policy, 6, 3));
      killed.steps(0, 12);
      killed.trainer().save();
      killed.trainer().finish_saving();
      killed.steps(12, 15);
    }
    Simulation resumed(runs, options(policy, 6, 3));
    EXPECT_TRUE(resumed.trainer().resume().resumed);
    EXPECT_EQ(resumed.buffer().pushed(), 12);
    resumed.steps(12, 20);
    for (size_t i = 0; i < resumed.batches(); ++i) {
      EXPECT_EQ(resumed.drawn(i), whole.drawn(i + 8)) << i;
    }
    EXPECT_TRUE(at::equal(resumed.weight(), whole.weight()));
  }
}

TEST(SampleBuffer, ABatchThatIsDrawnBeforeTheStepIsThatOfItsDiagnosis) {
  Simulation plain("", options(SamplePolicy::ring, 6, 3));
  plain.steps(0, 20);
  Simulation diagnosed("", options(SamplePolicy::ring, 6, 3));
  diagnosed.steps(0, 12);
  diagnosed.trainer().diagnose_next_overflow();
  diagnosed.steps(12, 20);
  EXPECT_EQ(plain.forwards(), plain.batches());
  EXPECT_GT(diagnosed.forwards(), diagnosed.batches());
  EXPECT_EQ(diagnosed.buffer().batches(), plain.buffer().batches());
  for (size_t i = 0; i < plain.batches(); ++i) {
    EXPECT_EQ(diagnosed.drawn(i), plain.drawn(i)) << i;
  }
  EXPECT_TRUE(at::equal(diagnosed.weight(), plain.weight()));
}

TEST(SampleBuffer, RefusesTheSamplesOfAnotherCapacity) {
  const testing::TemporaryFolder own;
  const std::string folder = runtime().control().all_gather_bytes(own.path()).front();
  {
    Simulation saved(folder, options(SamplePolicy::ring, 6, 3));
    saved.steps(0, 8);
    saved.trainer().save();
  }
  Simulation other(folder, options(SamplePolicy::ring, 5, 3));
  EXPECT_TRUE(other.trainer().resume().resumed);
  const auto refusal = error_of([&] { other.buffer().push(sample(1)); });
  EXPECT_THAT(refusal, HasSubstr("this one holds 5 samples of (Long [], Float [2])"));
  EXPECT_THAT(refusal, HasSubstr("resume with the buffer of the saved run"));
  EXPECT_EQ(error_of([&] { other.buffer().size(); }), refusal);
}

TEST(SampleBuffer, KeepsTheValuesOfLazyTensorsAndNamesThoseOfOtherMemory) {
  for (const testing::LazyForm& form : testing::lazy_forms()) {
    SCOPED_TRACE(form.name);
    const at::Tensor real = at::arange(1, 5, at::kFloat);
    const at::Tensor values = form.is_complex ? at::complex(real, real * 2) : real;
    const at::Tensor lazy = form.of(values);
    SampleBuffer buffer(runtime(), {lazy}, options(SamplePolicy::ring, 1, 1));
    buffer.push({lazy});
    EXPECT_TRUE(at::equal(buffer.batch()[0][0], values));
  }
  SampleBuffer buffer(runtime(), {at::ones({2}), at::ones({4, 4})},
                      options(SamplePolicy::ring, 1, 1));
  for (const testing::OddTensor& odd : testing::odd_tensors()) {
    SCOPED_TRACE(odd.word);
    EXPECT_THAT(error_of([&] {
                  buffer.push({at::ones({2}), odd.tensor});
                }),
                AllOf(HasSubstr("SampleBuffer: part 1"), HasSubstr(odd.word)));
    if (!odd.tensor.is_meta()) {  // which has sizes and a dtype
      EXPECT_THAT(error_of([&] { SampleBuffer(runtime(), {odd.tensor}); }),
                  AllOf(HasSubstr("SampleBuffer: part 0"), HasSubstr(odd.word)));
    }
  }
  EXPECT_EQ(buffer.pushed(), 0);
}

}  // namespace
}  // namespace lockstep
