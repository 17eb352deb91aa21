// lockstep diff: the first update, micro-batch and parameter at which two runs differ.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "launch.h"

namespace lockstep::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kOne = "3ff0000000000000";  // 1.0
constexpr const char* kTwo = "4000000000000000";  // 2.0

/// One update of two micro-batches and two parameters.
struct Line {
  int update = 0;
  std::string loss = kOne;  // of micro-batch 1
  std::string random = "07";
  std::string gradient = "0a";  // of second.bias
  std::string weight = "0b";
  bool hashed = true;

  std::string text() const {
    const std::string parameters = R"(,"parameters":[["second.bias",")" + weight + R"(",")" +
                                   gradient + R"("],["first.weight",")" + weight + R"(",")" +
                                   gradient + R"("]])";
    return R"({"update":)" + std::to_string(update) + R"(,"made":)" + std::to_string(update) +
           R"(,"micro_batches":[["3ff0000000000000","05"],[")" + loss + R"(",")" + random +
           R"("]])" + (hashed ? parameters : "") + "}\n";
  }
};

class DiffRuns : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  std::string write(const std::string& name, const std::vector<Line>& lines) const {
    std::ofstream file(path(name));
    for (const Line& line : lines) {
      file << line.text();
    }
    return path(name);
  }
  Launched diff(const std::vector<Line>& a, const std::vector<Line>& b) const {
    return launch({"diff", write("a", a), write("b", b)});
  }

 private:
  Folder folder_;
};

Line with(int update, std::string Line::*field, const std::string& value) {
  Line line{update};
  line.*field = value;
  return line;
}

TEST_F(DiffRuns, EqualRunsEndWith0) {
  const Launched ended = diff({{1}, {2}, {3}}, {{1}, {2}, {3}});
  EXPECT_EQ(ended.code, 0) << ended.error;
  EXPECT_THAT(ended.out, HasSubstr("equal: 3 updates"));
}

TEST_F(DiffRuns, TheUpdatesThatBothHaveAreCompared) {
  const Launched ended = diff({{1}, {2}, {3}}, {{2}, {3}, {4}, {5}});
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.out, HasSubstr("equal: 2 updates, of 3 and 4"));
  EXPECT_EQ(diff({{1}}, {{2}}).code, 2);
}

TEST_F(DiffRuns, AGradientThatDiffersIsNamedWithItsFirstUpdateAndParameter) {
  const Launched ended =
      diff({{1}, {2}, {3}}, {{1}, with(2, &Line::gradient, "ff"), with(3, &Line::weight, "ff")});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("update 2 is the first that differs"),
                               HasSubstr("parameter second.bias: the gradient differs"),
                               Not(HasSubstr("first.weight")), Not(HasSubstr("micro-batch"))));
}

TEST_F(DiffRuns, AWeightThatDiffersAloneIsToldFromAGradient) {
  const Launched ended = diff({{1}}, {with(1, &Line::weight, "ff")});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.out, HasSubstr("parameter second.bias: the weight differs"));
}

TEST_F(DiffRuns, ALossThatDiffersIsNamedWithItsMicroBatch) {
  Line other = with(2, &Line::loss, kTwo);
  other.hashed = false;
  Line mine{2};
  mine.hashed = false;
  const Launched ended = diff({{1}, mine}, {{1}, other});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.out, AllOf(HasSubstr("update 2 is the first"),
                               HasSubstr("micro-batch 1: the loss is 1 and 2"),
                               HasSubstr("not hashed at this update")));
}

TEST_F(DiffRuns, RandomNumbersThatDifferAreNamedWithTheirMicroBatch) {
  const Launched ended = diff({{4}}, {with(4, &Line::random, "08")});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.out, HasSubstr("micro-batch 1: the random numbers differ"));
}

TEST_F(DiffRuns, UpdatesWithoutGradientsAndWeightsAreCounted) {
  Line loss_alone{2};
  loss_alone.hashed = false;
  EXPECT_THAT(diff({{1}, loss_alone}, {{1}, {2}}).out,
              HasSubstr("gradients and weights are in both logs for 1 of them"));
  EXPECT_THAT(diff({{1}}, {{1}}).out, Not(HasSubstr("of them")));
}

TEST_F(DiffRuns, ALogWithoutDigestsIsNone) {
  for (const char* line : {R"({"update":1})", R"({"update":1,"micro_batches":[]})",
                           R"({"update":1,"micro_batches":7})"}) {
    std::ofstream(path("a")) << line << "\n";
    const Launched ended = launch({"diff", path("a"), path("a")});
    EXPECT_EQ(ended.code, 2) << line;
    EXPECT_THAT(ended.error, HasSubstr("no line of a digest log")) << line;
  }
}

TEST_F(DiffRuns, ALineThatWasCutOffAtTheEndIsLeftOut) {
  const std::string a = write("a", {{1}, {2}});
  const std::string b = write("b", {{1}});
  std::ofstream(b, std::ios::app) << Line{2}.text().substr(0, 30);
  const Launched ended = launch({"diff", a, b});
  EXPECT_EQ(ended.code, 0) << ended.error;
  EXPECT_THAT(ended.out, HasSubstr("equal: 1 updates"));
}

TEST_F(DiffRuns, AFolderHoldsItsLogAsDigestsJsonl) {
  write("digests.jsonl", {{1}});
  EXPECT_EQ(launch({"diff", path(""), write("b", {{1}})}).code, 0);
}

TEST_F(DiffRuns, WhatCannotBeReadEndsWith2AndIsNamed) {
  const std::string a = write("a", {{1}});
  const Launched missing = launch({"diff", a, path("nowhere")});
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.error, AllOf(HasSubstr("nowhere"), HasSubstr("digest_log")));
  std::ofstream(path("b")) << "no digests\n" << Line{1}.text();
  const Launched other = launch({"diff", a, path("b")});
  EXPECT_EQ(other.code, 2);
  EXPECT_THAT(other.error, HasSubstr("line 1"));
  std::ofstream(path("b")) << R"({"update":1,"x":)" << std::string(300'000, '[')
                           << std::string(300'000, ']') << "}\n";
  const Launched deep = launch({"diff", path("b"), a});
  EXPECT_EQ(deep.code, 2);
  EXPECT_THAT(deep.error, HasSubstr("nested deeper"));
  EXPECT_EQ(launch({"diff", a}).code, 2);
}

}  // namespace
}  // namespace lockstep::testing
