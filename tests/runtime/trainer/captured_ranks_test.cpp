// Recorded windows of several ranks: the model is in host memory, a record keeps the work and does
// it again, collectives included.
#include <gmock/gmock.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/graph_capture.h>
#include <lockstep/collectives/impl/transport.h>

#include "error_of.h"
#include "runtime/across_ranks.h"
#include "runtime/captured_runs.h"
#include "test_names.h"

namespace lockstep {

using namespace detail;

namespace {

/// Collectives over the host that let themselves be recorded by KeptWork.
class KeptCollectives final : public Transport, public GraphCapture {
 public:
  explicit KeptCollectives(Communicator ranks) : ranks_(std::move(ranks)) {}
  const char* name() const override { return "kept"; }
  int rank() const override { return ranks_.rank(); }
  int size() const override { return ranks_.size(); }
  int local_rank() const override { return ranks_.local_rank(); }
  int local_size() const override { return ranks_.local_size(); }

  std::shared_ptr<Operation> all_reduce(const at::Tensor& tensor, ReduceOp op) override {
    return kept(ranks_.all_reduce(tensor, op));
  }
  std::shared_ptr<Operation> reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                            ReduceOp op) override {
    return kept(ranks_.reduce_scatter(output, input, op));
  }
  std::shared_ptr<Operation> all_gather(const at::Tensor& output,
                                        const at::Tensor& input) override {
    return kept(ranks_.all_gather(output, input));
  }
  std::shared_ptr<Operation> broadcast(const at::Tensor& tensor, int root) override {
    return kept(ranks_.broadcast(tensor, root));
  }
  std::shared_ptr<Operation> barrier() override { return kept(ranks_.barrier()); }
  std::shared_ptr<Transport> split(int, int) override { return nullptr; }
  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override {
    return ranks_.allocate(numel, dtype);
  }
  void progress() override { ranks_.progress(); }
  GraphCapture* graph_capture() override { return this; }
  int64_t capture(CaptureKind kind, const CaptureWith& capture) override {
    const bool rehearsal = kind == CaptureKind::rehearsal;
    calls += rehearsal ? "rehearsal " : "capture ";
    const auto body = [&] { capture([] {}); };
    rehearsal ? body() : together_.attempt(body);
    return 7;
  }
  void launch(int64_t collectives, const std::function<void()>& launch) override {
    calls += c10::str("launch of ", collectives, " ");
    launch();
  }
  const CollectiveLog& log() const override { return log_; }

  std::string calls;
  int64_t collectives = 0;

 private:
  class Kept final : public Operation {
   public:
    explicit Kept(Work work) : work_(std::move(work)) {}
    bool test() override { return work_.test(); }
    void wait() override { work_.wait(); }

   private:
    Work work_;
  };
  std::shared_ptr<Operation> kept(Work work) {
    ++collectives;
    return std::make_shared<Kept>(std::move(work));
  }

  Communicator ranks_;
  Agreement together_{ranks_};
  CollectiveLog log_;
};

struct Devices {
  std::shared_ptr<KeptCollectives> transport =
      std::make_shared<KeptCollectives>(runtime().communicator());
};

struct Trained : Devices, CapturedRun {
  Trained(const TrainerOptions& options, bool graph)
      : CapturedRun(runtime(), Communicator(transport), options, graph) {}
};

bool is_last() {
  return runtime().rank() == runtime().size() - 1;
}

/// Differs by rank; only the last rank's may overflow.
Inputs own_batch(int64_t step, int64_t rows = 5) {
  Inputs inputs = batch(step, rows, is_last());
  inputs[0].add_(0.1 * runtime().rank());
  return inputs;
}

bool same_text_on_all_ranks(const std::string& text) {
  const auto all = Communicator(runtime().control()).all_gather_bytes(text);
  return std::all_of(all.begin(), all.end(), [&](const std::string& one) { return one == text; });
}

TEST(CapturedRanks, HaveTheBitsAndReportsOfPlainOnesAlsoWhereUpdatesAreSkipped) {
  constexpr int64_t steps = 150;
  for (const bool sharded : {false, true}) {
    const auto options = dynamic_half().shard_optimizer(sharded).share_weights(false);
    Trained plain(options, false);
    Trained captured(options, true);
    const auto inputs = [](int64_t step) { return own_batch(step); };
    const Course expected = testing::run(plain, steps, inputs);
    const Course found = testing::run(captured, steps, inputs);
    expect_same(found, expected);
    EXPECT_TRUE(expected.reports[50].skipped());
    EXPECT_GT(expected.reports.back().scale(), 256.0);
    EXPECT_TRUE(equal_on_all_ranks(found.masters.back()));
    EXPECT_EQ(plain.transport->calls, "");
    EXPECT_EQ(captured.transport->collectives, plain.transport->collectives);
    EXPECT_EQ(captured.calls.apart, 3);
    EXPECT_EQ(captured.calls.launches, steps - 3);
    EXPECT_THAT(captured.transport->calls,
                ::testing::StartsWith("rehearsal capture launch of 7 launch of 7 "));
  }
}

TEST(CapturedRanks, DoTheSameInEachWindowWhateverTheShapesOfEach) {
  constexpr int64_t steps = 40;
  const auto inputs = [](int64_t step) {
    return own_batch(step, is_last() ? 1 + step % 2 : 1 + step / 2 % 2);
  };
  Trained plain(dynamic_half(), false);
  Trained captured(dynamic_half(), true);
  const Course expected = testing::run(plain, steps, inputs);
  expect_same(testing::run(captured, steps, inputs), expected);
  EXPECT_EQ(captured.trainer.impl().captured->captured(), 4) << "two shapes of two kinds of ranks";
  EXPECT_EQ(captured.calls.launches, steps - 4 * 3);
  EXPECT_TRUE(same_text_on_all_ranks(captured.transport->calls));
}

TEST(CapturedRanks, RunDirectlyTogetherWhereOneHasTooManyShapes) {
  const auto inputs = [](int64_t step) { return own_batch(step, is_last() ? 1 + step % 9 : 5); };
  Trained plain(dynamic_half(), false);
  Trained captured(dynamic_half(), true);
  const Course expected = testing::run(plain, 45, inputs);
  expect_same(testing::run(captured, 45, inputs), expected);
  EXPECT_EQ(captured.trainer.impl().captured->captured(), 8);
  EXPECT_EQ(captured.calls.launches, 8 * 2);
}

TEST(CapturedRanks, AllThrowWhereOneCannotCaptureAndCanContinue) {
  for (const int refused : {1, 2}) {  // the rehearsal, or the record
    Trained captured(dynamic_half(), true);
    captured.calls.refuses = [&] { return is_last() && captured.calls.captures == refused; };
    for (int64_t step = 0; step < 3; ++step) {
      captured.step(own_batch(step));
    }
    const at::Tensor before = captured.masters();
    const std::string message = error_of([&] { captured.step(own_batch(3)); });
    EXPECT_THAT(message, HasSubstr(c10::str("rank ", runtime().size() - 1)));
    EXPECT_THAT(message, HasSubstr("cuda_graph: the step cannot be captured: operation not "
                                   "permitted when stream is capturing; its closure may neither"));
    EXPECT_TRUE(at::equal(captured.masters(), before));
    EXPECT_EQ(captured.transport->calls, refused == 1 ? "rehearsal " : "rehearsal capture ");
    for (int64_t step = 3; step < 7; ++step) {
      EXPECT_EQ(captured.step(own_batch(step)).update(), step + 1);
    }
    EXPECT_EQ(captured.calls.launches, 1) << "after three more windows";
    EXPECT_TRUE(equal_on_all_ranks(captured.masters()));
  }
}

TEST(CapturedRanks, AFailureBeforeTheCaptureReachesAllWhoThenCaptureTogether) {
  Trained captured(dynamic_half(), true);
  captured.step(own_batch(0));
  const std::string message = error_of([&] {
    captured.trainer.step(own_batch(1), [&](const Inputs& from) -> Loss {
      LOCKSTEP_CHECK(!is_last(), "no such file: batch.bin");
      return captured.model->loss(from[0], from[1]);
    });
    captured.step(own_batch(1));
  });
  EXPECT_THAT(message, HasSubstr("no such file: batch.bin"));
  for (int64_t step = 1; step < 6; ++step) {
    EXPECT_EQ(captured.step(own_batch(step)).update(), step + 1);
  }
  EXPECT_GE(captured.calls.launches, 3);
  EXPECT_TRUE(same_text_on_all_ranks(captured.transport->calls));
}

TEST(CapturedRanks, StopTogether) {
  Trained captured(dynamic_half(), true);
  for (int64_t step = 0; step < 5; ++step) {
    captured.step(own_batch(step));
  }
  if (is_last()) {
    captured.trainer.impl().step->consensus().request_stop();
  }
  captured.step(own_batch(5));
  captured.step(own_batch(6));
  EXPECT_TRUE(captured.trainer.impl().step->stop_requested());
}

TEST(CapturedRanks, ATransportThatGoesThroughTheHostIsRefused) {
  EXPECT_THAT(
      error_of([] { CapturedRun(runtime(), runtime().communicator(), TrainerOptions(), true); }),
      HasSubstr("cuda_graph: the collectives of the mpi transport go through the host, "
                "which has no part in a CUDA graph; let NCCL carry them"));
}

}  // namespace
}  // namespace lockstep
