// lockstep predict: costs and steps that were computed by hand.
#include "predict/predict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>

#include "linear_time.h"
#include "predict/forecast.h"

namespace lockstep::launcher {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr double kMillion = 1e6;

/// 4 ranks per node, 10 us and 10 GB/s in it; 100 us and 1 GB/s between nodes.
Network network() {
  Network figures;
  figures.ranks_per_node = 4;
  figures.node_latency = 10e-6;
  figures.node_rate = 10e9;
  figures.link_latency = 100e-6;
  figures.link_rate = 1e9;
  return figures;
}

/// Forward 10 ms, backward 20 ms, update 2 ms; two buckets of 1 MB of fp32, ready at 10 and 20 ms.
StepRecord step() {
  StepRecord record;
  record.forward = 10e-3;
  record.backward = 20e-3;
  record.update = 2e-3;
  record.buckets = {{10e-3, kMillion}, {20e-3, kMillion}};
  return record;
}

class Files : public ::testing::Test {
 protected:
  Files() {
    std::string pattern = "/tmp/lockstep-predict-XXXXXX";
    folder_ = mkdtemp(pattern.data());
  }
  ~Files() override {
    for (const char* name : {"network", "record"}) {
      unlink((folder_ + "/" + name).c_str());
    }
    rmdir(folder_.c_str());
  }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
    return folder_ + "/" + name;
  }
  std::string network_file() const {
    return write("network", R"({"ranks_per_node": 4,
      "node": {"latency_us": 10, "gigabytes_per_second": 10},
      "link": {"latency_us": 100, "gigabits_per_second": 8}})");
  }

 private:
  std::string folder_;
};
using Predict = Files;

template <typename Body>
std::string refusal(const Body& body) {
  try {
    body();
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(PredictedCost, OneNodePassesTheBytesOfARing) {
  const Network::Cost cost = network().all_reduce(kMillion, 4, 4);
  EXPECT_DOUBLE_EQ(cost.node, 10e-6 + 2 * 0.75 * 1e-4);
  EXPECT_EQ(cost.latency + cost.transfer, 0.0);
  EXPECT_EQ(network().all_reduce(kMillion, 4, 1).total(), 0.0);
}

TEST(PredictedCost, LargeBucketsGoThroughAChainOfNodes) {
  // 3 nodes: 2 hops there and 2 back. A node sends a sum of 4 bytes and a result for each element.
  const Network::Cost fp32 = network().all_reduce(kMillion, 4, 12);
  EXPECT_DOUBLE_EQ(fp32.latency, 4 * 100e-6);
  EXPECT_DOUBLE_EQ(fp32.transfer, 2e-3);
  const Network::Cost fp16 = network().all_reduce(kMillion, 2, 12);
  EXPECT_DOUBLE_EQ(fp16.transfer, 3e-3);  // 500,000 elements of 4 + 2 bytes
}

TEST(PredictedCost, SmallBucketsAndSmallNodesExchangeElementsInTwoRounds) {
  const Network::Cost small = network().all_reduce(40000, 4, 8);
  EXPECT_DOUBLE_EQ(small.latency, 2 * 100e-6);
  EXPECT_DOUBLE_EQ(small.transfer, 0.5 * 10000 * (4 * 4 + 4) / 1e9);
  Network single = network();
  single.ranks_per_node = 1;
  const Network::Cost large = single.all_reduce(kMillion, 4, 4);
  EXPECT_DOUBLE_EQ(large.latency, 2 * 100e-6);
  EXPECT_DOUBLE_EQ(large.transfer, 0.75 * 2 * kMillion / 1e9);
  EXPECT_EQ(large.node, 0.0);
}

TEST(PredictedCost, AFewBytesTakeOneRound) {
  const Network::Cost few = network().all_reduce(4000, 4, 12);  // 3 nodes
  EXPECT_DOUBLE_EQ(few.latency, 100e-6);
  EXPECT_DOUBLE_EQ(few.transfer, 2 * 1000 * 4 * 4 / 1e9);
}

TEST(PredictedCost, DoublesOfSingleRankNodesAreExchangedInTwoRounds) {
  Network single = network();
  single.ranks_per_node = 1;
  const Network::Cost doubles = single.all_reduce(kMillion, 8, 4);
  EXPECT_DOUBLE_EQ(doubles.latency, 2 * 100e-6);
  EXPECT_DOUBLE_EQ(doubles.transfer, 0.75 * 2 * kMillion / 1e9);
}

TEST(PredictedCost, ARankSendsNoFasterThanItsCoreCan) {
  Network busy = network();
  busy.link_processor = 0.8e-9;
  const Network::Cost cost = busy.all_reduce(kMillion, 4, 12);  // a node sends 2 MB, a rank 0.5
  EXPECT_DOUBLE_EQ(cost.processor, 0.4e-3);
  EXPECT_DOUBLE_EQ(cost.transfer, 2e-3);  // the rate of the link
  busy.link_processor = 8e-9;
  EXPECT_DOUBLE_EQ(busy.all_reduce(kMillion, 4, 12).transfer, 4e-3);
}

TEST(PredictedCost, OfShardsIsHalfOfARingAndAnExchangeBetweenNodes) {
  const Network::Cost node = network().reduce_scatter(kMillion, 4, 4);
  EXPECT_DOUBLE_EQ(node.node, 10e-6 + 0.75 * 1e-4);
  EXPECT_EQ(node.latency + node.transfer, 0.0);
  Network pairs = network();
  pairs.ranks_per_node = 2;
  // Per element a node sends 2 x 4 bytes to one other node; sums of a chain would be 2 x (4 + 4).
  const Network::Cost near = pairs.reduce_scatter(kMillion, 4, 4);
  EXPECT_DOUBLE_EQ(near.latency, 100e-6);
  EXPECT_DOUBLE_EQ(near.transfer, 0.5 * 2 * kMillion / 1e9);
  // 3 nodes of 4 ranks would send 2 x 4 x 4 bytes, a chain 3 x 8: that of an all-reduce is taken.
  EXPECT_DOUBLE_EQ(network().reduce_scatter(kMillion, 4, 12).total(),
                   network().all_reduce(kMillion, 4, 12).total());
}

TEST(PredictedCost, OfAGatherIsWhatOthersHaveOnceForANodeThatSharesTheWeights) {
  const Network::Cost all = network().all_gather(kMillion, 8, /*to_nodes=*/false);
  EXPECT_DOUBLE_EQ(all.node, 10e-6 + 0.75 * 1e-4);
  EXPECT_DOUBLE_EQ(all.latency, 100e-6);
  EXPECT_DOUBLE_EQ(all.transfer, 0.5e-3);
  const Network::Cost shared = network().all_gather(kMillion, 8, /*to_nodes=*/true);
  EXPECT_DOUBLE_EQ(shared.node, 10e-6);
  EXPECT_DOUBLE_EQ(shared.transfer, 0.5e-3);
  EXPECT_DOUBLE_EQ(network().all_gather(kMillion, 4, true).total(), 10e-6);
}

TEST(PredictedStep, OfShardedStatesHasAShareOfTheUpdateAndAGatherAfterIt) {
  const double bucket = 10e-6 + 0.75 * 1e-4;  // one node; the last one is exposed
  const double small =
      network().all_reduce(24, 8, 4).total() + network().all_reduce(128, 8, 4).total();
  const double gather = network().all_gather(kMillion, 4, false).total();  // 2 bytes an element
  const Forecast sharded = Forecast::of(step(), network(), 4, 1, {true, false, 2});
  EXPECT_NEAR(sharded.exposed, bucket + small + gather, 1e-12);
  EXPECT_NEAR(sharded.seconds, 30e-3 + 2e-3 / 4 + sharded.exposed, 1e-12);
  const Forecast shared = Forecast::of(step(), network(), 4, 1, {true, true, 2});
  EXPECT_NEAR(sharded.seconds - shared.seconds, 0.75 * 1e-4, 1e-12);
  EXPECT_EQ(Forecast::of(step(), network(), 1, 1, {true, true, 4}).seconds, 32e-3);
}

TEST(PredictedStep, WaitsForWhatBackwardDoesNotHide) {
  // Bucket 0: 10 -> 12.36 ms, hidden. Bucket 1: 20 -> 22.36 ms. Two nodes; flags and votes after.
  const double bucket = (10e-6 + 1.5e-4) + 2 * 100e-6 + 2e-3;
  const auto small = [](double bytes) {
    return (10e-6 + 1.5 * bytes / 10e9) + 100e-6 + bytes * 4 / 1e9;
  };
  const Forecast forecast = Forecast::of(step(), network(), 8, 1);
  EXPECT_NEAR(forecast.exposed, bucket + small(24) + small(128), 1e-12);
  EXPECT_NEAR(forecast.seconds, 32e-3 + forecast.exposed, 1e-12);
  EXPECT_NEAR(forecast.efficiency, 32e-3 / forecast.seconds, 1e-12);
  EXPECT_EQ(forecast.nodes, 2);
  EXPECT_EQ(forecast.limit, "link bandwidth");
}

TEST(PredictedStep, WhatGoesOverTheLinkDuringBackwardTakesItsProcessorTime) {
  Network busy = network();
  busy.link_processor = 0.8e-9;  // of a bucket a rank sends 0.5 MB: 0.4 ms
  const Forecast idle = Forecast::of(step(), network(), 8, 1);
  // Bucket 0 is hidden, bucket 1 comes after the backward.
  EXPECT_NEAR(Forecast::of(step(), busy, 8, 1).seconds, idle.seconds + 0.4e-3, 1e-12);
  StepRecord earlier = step();
  const double bucket = network().all_reduce(kMillion, 4, 8).total();
  earlier.buckets[1].ready = step().backward - bucket / 2;  // half of it ends after the backward
  EXPECT_NEAR(Forecast::of(earlier, busy, 8, 1).seconds, idle.seconds - bucket / 2 + 0.4e-3, 1e-9);
  earlier.buckets[1].ready = step().backward - 2 * bucket;  // both are hidden
  EXPECT_NEAR(Forecast::of(earlier, busy, 8, 1).seconds, idle.seconds - bucket + 0.8e-3, 1e-9);
}

TEST(PredictedStep, BucketsQueueBehindEachOther) {
  Network slow = network();
  slow.link_rate = 0.1e9;  // 20 ms a bucket
  const double bucket = 1.6e-4 + 2e-4 + 20e-3;
  const Forecast forecast = Forecast::of(step(), slow, 8, 1);
  EXPECT_NEAR(forecast.exposed, 10e-3 + 2 * bucket - 20e-3, 1e-3);
  EXPECT_GT(forecast.exposed, 10e-3 + 2 * bucket - 20e-3);  // flags and votes
}

TEST(PredictedStep, NamesWhatLimits) {
  EXPECT_EQ(Forecast::of(step(), network(), 1, 1).limit, "compute");
  EXPECT_EQ(Forecast::of(step(), network(), 1, 1).efficiency, 1.0);
  EXPECT_EQ(Forecast::of(step(), network(), 4, 1).limit, "compute");
  Network far = network();
  far.link_latency = 50e-3;
  EXPECT_EQ(Forecast::of(step(), far, 8, 1).limit, "link latency");
  Network slow_node = network();
  slow_node.node_rate = 1e8;
  EXPECT_EQ(Forecast::of(step(), slow_node, 8, 1).limit, "node");
}

TEST(PredictedStep, AccumulationSpreadsTheWait) {
  const Forecast once = Forecast::of(step(), network(), 8, 1);
  const Forecast often = Forecast::of(step(), network(), 8, 10);
  EXPECT_NEAR(often.seconds - once.seconds, 9 * 30e-3, 1e-12);
  EXPECT_NEAR(often.exposed, once.exposed, 1e-12);
}

TEST(PredictedAdvice, CutsBucketsWhereGradientsComeEvenly) {
  const StepRecord cut = step().with_buckets(0.5 * kMillion, kMillion);
  ASSERT_EQ(cut.buckets.size(), 3U);
  EXPECT_NEAR(cut.buckets[0].ready, 5e-3, 1e-12);
  EXPECT_NEAR(cut.buckets[1].ready, 15e-3, 1e-12);
  EXPECT_NEAR(cut.buckets[2].ready, 20e-3, 1e-12);
  EXPECT_EQ(cut.buckets[2].bytes, 0.5 * kMillion);
  EXPECT_EQ(cut.bytes(), step().bytes());
}

TEST(PredictedAdvice, CutsManyBucketsInLinearTime) {
  StepRecord once, twice;
  once.buckets.assign(20'000, {1e-3, kMillion});
  twice.buckets.assign(40'000, {1e-3, kMillion});
  EXPECT_TRUE(testing::is_linear([&] { once.with_buckets(kMillion, kMillion); },
                                 [&] { twice.with_buckets(kMillion, kMillion); }));
}

TEST(PredictedAdvice, TakesSmallBucketsWhereLatencyIsLowAndLargeOnesWhereItIsHigh) {
  StepRecord large = step();
  large.buckets = {{10e-3, 50 * kMillion}, {20e-3, 50 * kMillion}};
  Network near = network();
  near.link_latency = 1e-6;
  near.node_latency = 1e-6;
  near.node_rate = 100e9;
  near.link_rate = 20e9;
  EXPECT_EQ(Advice::of(large, near, 8).bucket_bytes, 1 << 20);
  Network far = network();
  far.link_latency = 10e-3;
  EXPECT_GE(Advice::of(large, far, 8).bucket_bytes, 50 << 20);
}

TEST(PredictedAdvice, AccumulatesUntilTheWaitIsAFewPercent) {
  const Advice advice = Advice::of(step(), network(), 8);
  const double exposed = advice.with_buckets.exposed;
  EXPECT_LE(exposed, 0.05 * (step().compute(advice.accumulate) + exposed));
  ASSERT_GT(advice.accumulate, 1);
  EXPECT_GT(exposed, 0.05 * (step().compute(advice.accumulate - 1) + exposed));
  EXPECT_EQ(Advice::of(step(), network(), 1).accumulate, 1);
  Network never = network();
  never.link_rate = 1e3;
  EXPECT_EQ(Advice::of(step(), never, 8).accumulate, 0);
}

/// One update of a rank: forward 10 ms, backward 20 ms, buckets ready after 10 and 20 ms.
std::string spans(int rank, double start, double forward = 10e3) {
  const auto span = [&](const std::string& name, double begin, double duration,
                        const std::string& more = "") {
    return R"({"ph": "X", "tid": 0, "pid": )" + std::to_string(rank) + R"(, "name": ")" + name +
           R"(", "ts": )" + std::to_string(start + begin) + R"(, "dur": )" +
           std::to_string(duration) + more + "},";
  };
  const std::string figures = R"(, "args": {"bytes": 1000000, "element_bytes": 2})";
  return span("forward", 0, forward) + span("backward", forward, 20e3) +
         span("launch bucket 0", forward + 10e3, 5, figures) +
         span("launch bucket 1", forward + 20e3, 5, figures) +
         span("wait for bucket 0", forward + 21e3, 900) + span("update", forward + 30e3, 2e3);
}

TEST_F(Predict, ReadsTheMedianUpdateOfTheSlowestRankFromATrace) {
  const std::string events = R"({"ph": "M", "pid": 0, "name": "process_name"})";
  const std::string path = write(
      "record", R"({"traceEvents": [)" + spans(0, 0) + spans(1, 0, 500e3) + spans(1, 1e6, 40e3) +
                    spans(1, 2e6, 30e3) + R"({"ph": "X", "tid": 0, "pid": 1, "name": "forward",
                    "ts": 3000000, "dur": 9},)" +
                    events + "]}");
  const StepRecord record = StepRecord::read(path);
  EXPECT_NEAR(record.forward, 40e-3, 1e-9);
  EXPECT_NEAR(record.backward, 20e-3, 1e-9);
  EXPECT_NEAR(record.update, 2e-3, 1e-9);
  EXPECT_EQ(record.accumulate, 1);
  EXPECT_EQ(record.element, 2);
  ASSERT_EQ(record.buckets.size(), 2U);
  EXPECT_NEAR(record.buckets[0].ready, 10e-3, 1e-9);
  EXPECT_EQ(record.buckets[1].bytes, kMillion);
}

TEST_F(Predict, RefusesRecordsThatSayTooLittle) {
  const auto read = [&](const std::string& text) {
    return refusal([&] { StepRecord::read(write("record", text)); });
  };
  EXPECT_THAT(read("no JSON"), HasSubstr("cannot be read as a JSON object"));
  EXPECT_THAT(read(R"({"traceEvents": []})"), HasSubstr("has no update with forward"));
  std::string without = R"({"traceEvents": [)" + spans(0, 0) + R"({"ph": "M"}]})";
  for (size_t at = without.find("args"); at != std::string::npos; at = without.find("args")) {
    without.replace(at, 4, "none");
  }
  EXPECT_THAT(read(without), HasSubstr("does not say how large its buckets are"));
  EXPECT_THAT(read(R"({"forward_ms": 1})"), HasSubstr("\"backward_ms\": a number above 0"));
  EXPECT_THAT(read(R"({"forward_ms": 1, "backward_ms": 1, "update_ms": 1, "element_bytes": 4})"),
              HasSubstr("\"buckets\""));
}

TEST_F(Predict, NamesTheFileThatHasAValueOfAnotherType) {
  const auto read = [&](const std::string& text) {
    return refusal([&] { StepRecord::read(write("record", text)); });
  };
  const std::string times = R"({"forward_ms": 1, "backward_ms": 1, "update_ms": 1, )";
  for (const char* bytes : {"0.5", "1e300"}) {
    EXPECT_THAT(read(times + R"("element_bytes": )" + bytes + "}"),
                AllOf(HasSubstr("/record: "), HasSubstr("element_bytes must be 1 to 16")));
  }
  for (const char* rest :
       {R"("element_bytes": 4, "buckets": [7]})", R"("element_bytes": 4, "accumulate": "two"})",
        R"("element_bytes": 4, "buckets": [{"bytes": "many"}]})"}) {
    EXPECT_THAT(read(times + rest),
                AllOf(HasSubstr("/record: "),
                      AnyOf(HasSubstr("type_error"), HasSubstr("expected a number"))));
  }
  EXPECT_THAT(read(R"({"traceEvents": [{"ph": 1}]})"),
              AllOf(HasSubstr("/record: "), HasSubstr("type must be string")));
  EXPECT_THAT(refusal([&] { Network::read(write("network", R"({"ranks_per_node": "four"})")); }),
              AllOf(HasSubstr("/network: "), HasSubstr("type must be number")));
}

TEST_F(Predict, NamesAFigureThatIsOutOfRange) {
  const auto read = [&](const std::string& accumulate, const std::string& bucket) {
    const std::string text = R"({"forward_ms": 1, "backward_ms": 1, "update_ms": 1, )"
                             R"("element_bytes": 4, "accumulate": )" +
                             accumulate + R"(, "buckets": [)" + bucket + "]}";
    return refusal([&] { StepRecord::read(write("record", text)); });
  };
  EXPECT_THAT(read("1", R"({"ready_ms": 1, "bytes": -8})"),
              AllOf(HasSubstr("/record: "), HasSubstr(R"("bytes" is -8, expected)")));
  EXPECT_THAT(read("1", R"({"ready_ms": -1, "bytes": 8})"), HasSubstr(R"("ready_ms" is -1)"));
  EXPECT_THAT(read("1", R"({"bytes": 1e16})"), HasSubstr(R"("bytes" is 1e+16)"));
  EXPECT_THAT(read("2.5", R"({"bytes": 8})"), HasSubstr("expected a whole number"));
  EXPECT_THAT(read("-1", R"({"bytes": 8})"), HasSubstr(R"("accumulate" is -1)"));
  EXPECT_THAT(read("1", R"({"bytes": 6e11}, {"bytes": 6e11})"),
              HasSubstr("/record: its buckets have more than 1e12 bytes in all"));
  std::string trace = R"({"traceEvents": [)" + spans(0, 0) + R"({"ph": "M"}]})";
  trace.replace(trace.find("1000000"), 7, "1e300");
  EXPECT_THAT(refusal([&] { StepRecord::read(write("record", trace)); }),
              HasSubstr(R"(/record: "bytes" is 1e+300, expected a number from 0 to 1e+12)"));
  EXPECT_THAT(refusal([&] { Network::read(write("network", R"({"ranks_per_node": 1e300})")); }),
              HasSubstr(R"(/network: needs {"ranks_per_node": a number above 0)"));
}

TEST_F(Predict, RefusesWhatIsNestedDeeply) {
  const std::string deep =
      R"({"buckets": )" + std::string(200'000, '[') + std::string(200'000, ']') + "}";
  EXPECT_THAT(refusal([&] { StepRecord::read(write("record", deep)); }),
              HasSubstr("/record: cannot be read as a JSON object: nested deeper than 8"));
  EXPECT_THAT(refusal([&] { Network::read(write("network", deep)); }), HasSubstr("nested deeper"));
}

TEST_F(Predict, ReadsTheProcessorTimeOfALinkIfItIsGiven) {
  const std::string text =
      R"({"ranks_per_node": 1, "link": {"latency_us": 1, "gigabits_per_second": 1)";
  EXPECT_EQ(Network::read(write("network", text + "}}")).link_processor, 0.0);
  EXPECT_DOUBLE_EQ(Network::read(write("network", text + R"(, "processor_us_per_megabyte": 800}})"))
                       .link_processor,
                   0.8e-9);
  EXPECT_THAT(refusal([&] {
                Network::read(write("network", text + R"(, "processor_us_per_megabyte": "few"}})"));
              }),
              HasSubstr("\"processor_us_per_megabyte\": a number above 0"));
}

TEST_F(Predict, PrintsALineForEachNumberOfRanks) {
  const std::string record = write("record", R"({"forward_ms": 10, "backward_ms": 20,
    "update_ms": 2, "element_bytes": 4, "buckets": [{"ready_ms": 10, "bytes": 1000000},
    {"ready_ms": 20, "bytes": 1000000}]})");
  std::ostringstream out;
  std::ostringstream error;
  EXPECT_EQ(predict({"2..12", network_file(), record, {}}, out, error), 0);
  EXPECT_EQ(error.str(), "");
  const std::string text = out.str();
  EXPECT_THAT(text, AllOf(HasSubstr("recorded: 1 x (forward 10.00 ms + backward 20.00 ms)"),
                          HasSubstr("\n     2      1 "), HasSubstr("\n     4      1 "),
                          HasSubstr("\n     8      2        34.5"), HasSubstr("\n    12      3 "),
                          HasSubstr("link bandwidth")));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6);  // recorded, heads; 2, 4, 8, 12 ranks
}

TEST_F(Predict, NamesWhatItCannotUse) {
  const std::string record = write("record", R"({"forward_ms": 10, "backward_ms": 20,
    "update_ms": 2, "element_bytes": 4, "buckets": [{"ready_ms": 10, "bytes": 1000000}]})");
  const auto refused = [&](const std::string& ranks, const std::string& figures) {
    std::ostringstream out;
    std::ostringstream error;
    EXPECT_EQ(predict({ranks, write("network", figures), record, {}}, out, error), 2);
    return error.str();
  };
  for (const char* ranks : {"", "0..4", "4..2", "2..", "2,x", "-1", "2.5"}) {
    EXPECT_THAT(refused(ranks, "{}"), HasSubstr("is no range such as 2..64")) << ranks;
  }
  EXPECT_THAT(refused("2", "{}"), HasSubstr("\"ranks_per_node\": a number above 0"));
  EXPECT_THAT(refused("2", R"({"ranks_per_node": 2})"), HasSubstr("\"node\": {\"latency_us\""));
  EXPECT_THAT(refused("2", R"({"ranks_per_node": 1, "link": {"latency_us": -1}})"),
              HasSubstr("\"link\": {\"latency_us\": a number above 0}"));
}

}  // namespace
}  // namespace lockstep::launcher
