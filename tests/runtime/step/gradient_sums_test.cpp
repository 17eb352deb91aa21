// How a Trainer's gradients are summed over NCCL: in which dtype, and as what.
#include <gtest/gtest.h>
#include <lockstep/collectives/impl/transport.h>
#include <lockstep/runtime/step/impl/gradient_sums.h>
#include <lockstep/runtime/step/impl/reducer.h>

#include <optional>

namespace lockstep {

using namespace detail;

namespace {

/// Rank 0 of `size` ranks. Records what it is given to reduce, and leaves it as it is.
class Recorder final : public Transport {
 public:
  Recorder(const char* name, int size) : name_(name), size_(size) {}
  const char* name() const override { return name_; }
  bool rounds_at_each_rank() const override { return std::string(name_) == "nccl"; }
  int rank() const override { return 0; }
  int size() const override { return size_; }
  int local_rank() const override { return 0; }
  int local_size() const override { return size_; }
  std::shared_ptr<Operation> all_reduce(const at::Tensor& tensor, ReduceOp op) override {
    operations.push_back(op);
    reduced.push_back(tensor.clone());
    return nullptr;
  }
  std::shared_ptr<Operation> reduce_scatter(const at::Tensor& output, const at::Tensor& input,
                                            ReduceOp op) override {
    operations.push_back(op);
    shares.push_back(output);
    scattered.push_back(input);
    sent.push_back(input.clone());
    return in_flight;
  }
  std::shared_ptr<Operation> all_gather(const at::Tensor&, const at::Tensor&) override {
    return nullptr;
  }
  std::shared_ptr<Operation> broadcast(const at::Tensor&, int) override { return nullptr; }
  std::shared_ptr<Operation> barrier() override { return nullptr; }
  std::shared_ptr<Transport> split(int, int) override { return nullptr; }
  at::Tensor allocate(int64_t numel, at::ScalarType dtype) override {
    return at::zeros({numel}, dtype);
  }
  void progress() override {}
  const CollectiveLog& log() const override { return log_; }

  std::vector<ReduceOp> operations;
  std::vector<at::Tensor> reduced;
  std::vector<at::Tensor> shares, scattered, sent;
  std::shared_ptr<Operation> in_flight;  // of each reduce_scatter; null: complete

 private:
  const char* name_;
  int size_;
  CollectiveLog log_;
};

Communicator ranks(const char* name, int size) {
  return Communicator(std::make_shared<Recorder>(name, size));
}

TEST(GradientSums, TravelIn32BitsOverManyRanksOfNccl) {
  const auto wire = [](const Precision& precision, int size) {
    return with_default_wire(precision, ranks("nccl", size)).wire_dtype();
  };
  for (const auto& level : {Precision::O1, Precision::O2, Precision::O3}) {
    EXPECT_EQ(wire(level(at::kBFloat16), 8), at::kBFloat16);
    EXPECT_EQ(wire(level(at::kBFloat16), 9), at::kFloat);
    EXPECT_EQ(wire(level(at::kHalf), 64), at::kHalf);
    EXPECT_EQ(wire(level(at::kHalf), 65), at::kFloat);
  }
  EXPECT_EQ(wire(Precision::O0(), 1000), at::kFloat);
}

TEST(GradientSums, TravelInTheDtypeThatTheProgramNames) {
  const Communicator many = ranks("nccl", 1000);
  const auto named = Precision::O1(at::kBFloat16).wire(at::kBFloat16);
  EXPECT_EQ(with_default_wire(named, many).wire_dtype(), at::kBFloat16);
  const auto other = Precision::O0().wire(at::kHalf);
  EXPECT_EQ(with_default_wire(other, many).wire_dtype(), at::kHalf);
}

TEST(GradientSums, TravelIn16BitsWhereHostsRoundOnce) {
  for (const char* name : {"mpi", "staged", "thread", "solo"}) {
    EXPECT_EQ(with_default_wire(Precision::O1(at::kBFloat16), ranks(name, 1000)).wire_dtype(),
              at::kBFloat16);
  }
}

TEST(GradientSums, AreOfSharesOverNcclUnlessThePredivisionNeedsTheGradient) {
  const auto sum = ReduceOp::sum(), mean = ReduceOp::avg();
  const Communicator nccl = ranks("nccl", 3), host = ranks("mpi", 3);
  for (const auto& precision : {Precision::O0(), Precision::O1(at::kHalf)}) {
    EXPECT_EQ(gradient_operation(precision, nccl), sum);
    EXPECT_EQ(gradient_operation(precision, host), mean);
    EXPECT_EQ(gradient_operation(precision.predivide(4), nccl), mean.predivide(4));
  }
}

/// What a Reducer sends of the gradients 1, 2, 3, 4 when `factor` is asked for.
at::Tensor sent(Recorder& recorder, const Communicator& communicator, ReduceOp op, double factor) {
  const at::Tensor weight = at::ones({4}).set_requires_grad(true);
  ReducerOptions options;
  options.op = op;
  options.take_gradients = true;
  Communicator devices = communicator;
  const auto plans = plan_buckets({{4, at::kFloat, at::kFloat, 0}}, {});
  Reducer reducer(devices, {{"weight", {}, weight}}, plans, allocate_wires(devices, plans),
                  options);
  reducer.synchronise(factor);
  const at::Tensor values = at::arange(1, 5, at::kFloat);
  reducer.take_from([&] { (weight * values).sum().backward(); });
  reducer.launch_rest();
  EXPECT_EQ(recorder.operations.back(), op);
  return recorder.reduced.back().narrow(0, 0, 4);  // buckets are padded
}

TEST(GradientSums, ArePackedAsSharesOfTheMeanAndOtherwiseWhole) {
  for (const int size : {2, 3, 8}) {
    const auto recorder = std::make_shared<Recorder>("nccl", size);
    const Communicator communicator(recorder);
    const at::Tensor gradient = at::arange(1, 5, at::kFloat) * 0.5;
    const at::Tensor share = sent(*recorder, communicator, ReduceOp::sum(), 0.5);
    EXPECT_TRUE(at::allclose(share * size, gradient, 1e-6));
    if (size != 3) {
      EXPECT_TRUE(at::equal(share * size, gradient)) << "a power of two rounds nothing";
    }
    EXPECT_TRUE(at::equal(sent(*recorder, communicator, ReduceOp::avg(), 0.5), gradient));
  }
}

TEST(ScatteredSums, GoToTheRankThatUpdatesTheShareAndNowhereElse) {
  const auto recorder = std::make_shared<Recorder>("nccl", 3);  // this is rank 0
  Communicator devices(recorder);
  const at::Tensor weight = at::ones({500}).set_requires_grad(true);
  ReducerOptions options;
  options.op = ReduceOp::sum();
  options.take_gradients = true;
  options.scatter = true;
  const auto plans = plan_buckets({{500, at::kFloat, at::kFloat, 0}}, {});
  Reducer reducer(devices, {{"weight", {}, weight}}, plans,
                  allocate_wires(devices, plans, WireLayout::scattered), options);
  reducer.synchronise(3.0);  // shares of the mean of three ranks
  reducer.take_from([&] { (weight * at::arange(500)).sum().backward(); });
  reducer.launch_rest();
  EXPECT_TRUE(recorder->reduced.empty());
  ASSERT_EQ(recorder->scattered.size(), 1U);
  const at::Tensor& sent = recorder->scattered.front();
  const at::Tensor& share = recorder->shares.front();
  const Shard own = Shard::of(plans.front().numel, 0, 3);
  EXPECT_EQ(sent.numel(), 3 * own.stride);
  EXPECT_EQ(share.numel(), own.stride);
  EXPECT_EQ(share.const_data_ptr(), sent.const_data_ptr());  // in place, at rank 0's share
  EXPECT_EQ(reducer.wire(0).const_data_ptr(), sent.const_data_ptr());
  EXPECT_TRUE(at::equal(sent.narrow(0, 0, 500), at::arange(500, at::kFloat)));
  EXPECT_EQ(sent.narrow(0, 500, sent.numel() - 500).count_nonzero().item<int64_t>(), 0);
  EXPECT_EQ(reducer.own_shard(0).numel, own.numel);
}

/// A reducer of 8 parameters, each in a bucket of its own, of 512 and of 450 elements in turn.
/// Parameter i has the gradient i + 1.
struct RingRun {
  explicit RingRun(std::shared_ptr<Operation> in_flight = nullptr)
      : recorder(std::make_shared<Recorder>("nccl", 4)), devices(recorder) {
    recorder->in_flight = std::move(in_flight);
    std::vector<PlannedParameter> planned;
    for (int i = 0; i < 8; ++i) {
      weights.push_back(at::ones({i % 2 == 0 ? 512 : 450}).set_requires_grad(true));
      parameters.push_back({"weight" + std::to_string(i), {}, weights.back()});
      planned.push_back({weights.back().numel(), at::kFloat, at::kFloat, 0});
    }
    plans = plan_buckets(planned, BucketOptions().first_bucket_bytes(16).bucket_bytes(100));
    ReducerOptions options;
    options.take_gradients = true;
    options.scatter = true;
    reducer.emplace(devices, parameters, plans,
                    allocate_wires(devices, plans, WireLayout::scattered), options);
  }
  void backward() {
    reducer->synchronise(1.0);
    reducer->take_from([&] {
      at::Tensor loss = at::zeros({});
      for (size_t i = 0; i < weights.size(); ++i) {
        loss = loss + weights[i].sum() * static_cast<double>(i + 1);
      }
      loss.backward();
    });
  }
  void expect_all_sent() const {
    ASSERT_EQ(recorder->sent.size(), 8U);
    for (size_t b = 0; b < 8; ++b) {
      const Slot& slot = plans[b].slots.front();
      at::Tensor expected = at::zeros({512});
      expected.narrow(0, 0, slot.numel).fill_(slot.parameter + 1);
      EXPECT_TRUE(at::equal(recorder->sent[b], expected)) << "bucket " << b;
    }
  }
  std::shared_ptr<Recorder> recorder;
  Communicator devices;
  std::vector<at::Tensor> weights;
  std::vector<ModelTensor> parameters;
  std::vector<BucketPlan> plans;
  std::optional<Reducer> reducer;
};

TEST(ScatteredSums, LeaveAShardAndGiveTheirWireToTheThirdBucketAfterThem) {
  RingRun run;
  for (int window = 0; window < 2; ++window) {
    run.recorder->sent.clear();
    run.backward();
    run.reducer->launch_rest();
    run.expect_all_sent();
    for (size_t b = 0; b < 8; ++b) {
      run.reducer->wait(b);
    }
    for (size_t b = 0; b < 8; ++b) {
      const at::Tensor own = run.reducer->gradient(b, run.reducer->own_shard(b));
      EXPECT_TRUE(at::equal(own, run.recorder->sent[b].narrow(0, 0, 128))) << "bucket " << b;
      EXPECT_EQ(run.recorder->scattered[b].const_data_ptr(),
                run.recorder->scattered[b % 3].const_data_ptr());
    }
    run.reducer->reset();
  }
  EXPECT_EQ(run.reducer->wire_bytes(), 3 * 512 * 4 + 8 * 128 * 4);
}

/// A collective that is complete only for a rank that waits.
struct Late final : Operation {
  bool test() override { return false; }
  void wait() override { ++waits; }
  int waits = 0;
};

TEST(ScatteredSums, AHookDoesNotWaitForAWire) {
  const auto late = std::make_shared<Late>();
  RingRun run(late);
  run.backward();
  EXPECT_EQ(run.recorder->sent.size(), 3U);
  EXPECT_EQ(late->waits, 0);
  run.reducer->launch_rest();
  run.expect_all_sent();
}

}  // namespace
}  // namespace lockstep
