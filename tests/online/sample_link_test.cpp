// Samples from simulating to training ranks: their order, back-pressure, the end.
#include <gmock/gmock.h>
#include <lockstep/inputs/sample_buffer.h>
#include <lockstep/inputs/sample_link.h>
#include <mpi.h>
#include <torch/torch.h>

#include "error_of.h"
#include "odd_tensors.h"
#include "test_names.h"
#include "test_runtime.h"

namespace lockstep {
namespace {

const std::vector<at::Tensor> kLike = {at::zeros({}, at::kLong), at::zeros({2})};

std::vector<at::Tensor> sample(int64_t number) {
  return {at::scalar_tensor(number, at::kLong), at::full({2}, static_cast<double>(number))};
}

void wait_for_all() {
  MPI_Barrier(MPI_COMM_WORLD);
}

/// Receives samples one after the other.
class Received {
 public:
  /// Whether there was one.
  bool next(SampleLink& link) {
    if (link.receive(buffer_, 1) == 0) {
      return false;
    }
    note();
    return true;
  }
  bool next_arrived(SampleLink& link) {
    if (link.receive_arrived(buffer_, 1) == 0) {
      return false;
    }
    note();
    return true;
  }
  const std::vector<int64_t>& numbers() const { return numbers_; }

 private:
  void note() {
    const auto batch = buffer_.batch();
    numbers_.push_back(batch[0].item<int64_t>());
    EXPECT_TRUE(at::equal(batch[1][0], sample(numbers_.back())[1]));
  }

  SampleBuffer buffer_{runtime(), kLike, SampleBufferOptions().capacity(1)};
  std::vector<int64_t> numbers_;
};

/// How many samples a simulating rank sends.
int64_t samples_of(int64_t simulator) {
  return 5 + 2 * simulator;
}

/// What training rank `t` of `trainers` must get.
std::vector<int64_t> expected(int64_t simulators, int64_t trainers, int64_t t) {
  std::vector<int64_t> numbers;
  for (int64_t k = 0; k < samples_of(simulators); ++k) {
    for (int64_t i = 0; i < simulators; ++i) {
      if (k < samples_of(i) && (i + k) % trainers == t) {
        numbers.push_back(100 * i + k);
      }
    }
  }
  return numbers;
}

void send_and_compare(bool trains, int64_t simulators, int64_t number, bool arrived_only) {
  SampleLink link(MPI_COMM_WORLD, trains, kLike, SampleLinkOptions().in_flight(2));
  if (!trains) {
    for (int64_t k = 0; k < samples_of(number); ++k) {
      link.send(sample(100 * number + k));
    }
    link.finish();
    EXPECT_THAT(error_of([&] { link.send(sample(1)); }), HasSubstr("no more samples"));
    return;
  }
  const int64_t trainers = runtime().size() - simulators;
  const std::vector<int64_t> wanted = expected(simulators, trainers, number);
  Received received;
  while (arrived_only && received.numbers().size() < wanted.size()) {
    received.next_arrived(link);
  }
  while (received.next(link)) {
  }
  EXPECT_EQ(received.numbers(), wanted);
}

TEST(SampleLink, TheOrderOfSamplesDoesNotDependOnTiming) {
  const int rank = runtime().rank(), ranks = runtime().size();
  for (const bool arrived_only : {false, true}) {
    send_and_compare(rank == 0, ranks - 1, rank == 0 ? 0 : rank - 1, arrived_only);
    send_and_compare(rank > 0, 1, rank > 0 ? rank - 1 : 0, arrived_only);
  }
}

TEST(SampleLink, ASimulatingRankIsHeldUpByWhatNobodyHasTaken) {
  const bool trains = runtime().rank() == 0;
  SampleLink link(MPI_COMM_WORLD, trains, kLike, SampleLinkOptions().in_flight(2));
  Received received;
  if (trains) {
    EXPECT_FALSE(received.next_arrived(link));
  }
  wait_for_all();
  if (!trains) {
    EXPECT_TRUE(link.try_send(sample(1)));
    EXPECT_TRUE(link.try_send(sample(2)));
    EXPECT_FALSE(link.try_send(sample(3)));
    EXPECT_EQ(link.waiting(), 2);
  }
  wait_for_all();
  for (int taken = 0; trains && taken < 2 * (runtime().size() - 1); ++taken) {
    EXPECT_TRUE(received.next(link));
  }
  if (!trains) {
    while (link.waiting() > 0) {
    }
    EXPECT_TRUE(link.try_send(sample(3)));
    link.finish();
  } else {
    while (received.next(link)) {
    }
    EXPECT_EQ(received.numbers().size(), 3U * static_cast<size_t>(runtime().size() - 1));
    EXPECT_EQ(received.numbers().back(), 3);
  }
}

TEST(SampleLink, SendsTheValuesOfLazyTensorsAndNamesThoseOfOtherMemory) {
  const bool trains = runtime().rank() == 0;
  const auto forms = testing::lazy_forms();
  const at::Tensor real = at::arange(1, 5, at::kFloat);
  std::vector<at::Tensor> like, values, lazy;
  for (const testing::LazyForm& form : forms) {
    values.push_back(form.is_complex ? at::complex(real, real * 2) : real);
    lazy.push_back(form.of(values.back()));
    like.push_back(at::zeros_like(values.back()));
  }
  SampleLink link(MPI_COMM_WORLD, trains, like);
  if (!trains) {
    for (const testing::OddTensor& odd : testing::odd_tensors()) {
      std::vector<at::Tensor> sample = lazy;
      sample[1] = odd.tensor;
      EXPECT_THAT(error_of([&] { link.send(sample); }),
                  AllOf(HasSubstr("SampleLink: part 1"), HasSubstr(odd.word)));
    }
    link.send(lazy);
    link.finish();
    return;
  }
  SampleBuffer buffer(runtime(), like, SampleBufferOptions().capacity(4).batch_size(1));
  EXPECT_EQ(link.receive(buffer, 10), runtime().size() - 1);
  const std::vector<at::Tensor> batch = buffer.batch();
  for (size_t i = 0; i < forms.size(); ++i) {
    EXPECT_TRUE(at::equal(batch[i][0], values[i])) << forms[i].name;
  }
}

TEST(SampleLink, RefusesMisuse) {
  const bool trains = runtime().rank() == 0;
  EXPECT_THAT(error_of([] { const SampleLink link(MPI_COMM_WORLD, true, kLike); }),
              HasSubstr("0 simulate"));
  EXPECT_THAT(error_of([] { const SampleLink link(MPI_COMM_WORLD, false, kLike); }),
              HasSubstr("0 ranks train"));
  EXPECT_THAT(error_of([&] {
                const SampleLink link(MPI_COMM_WORLD, trains, {at::zeros({trains ? 1 : 2})});
              }),
              HasSubstr("a sample has 4 bytes on rank 0 and 8 on rank 1"));
  EXPECT_THAT(error_of([&] {
                const SampleLink link(MPI_COMM_WORLD, trains, kLike,
                                      SampleLinkOptions().in_flight(0));
              }),
              HasSubstr("in_flight is 0"));
  SampleLink link(MPI_COMM_WORLD, trains, kLike);
  SampleBuffer buffer(runtime(), kLike);
  if (trains) {
    EXPECT_THAT(error_of([&] { link.send(sample(1)); }), HasSubstr("this rank trains"));
    EXPECT_EQ(link.receive(buffer, 1), 0);
  } else {
    EXPECT_THAT(error_of([&] { link.receive(buffer, 1); }), HasSubstr("this rank simulates"));
    EXPECT_THAT(error_of([&] {
                  link.send({at::zeros({}), at::zeros({2})});
                }),
                HasSubstr("part 0 of the sample"));
    EXPECT_EQ(link.waiting(), 0);
    link.finish();
  }
}

}  // namespace
}  // namespace lockstep
