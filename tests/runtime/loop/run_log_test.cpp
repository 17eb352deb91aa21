// What RunLog writes, read as lines; run_log_reader.py reads the same with TensorBoard's own means.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/runtime/run_log.h>
#include <lockstep/runtime/trainer/impl/kept_training.h>
#include <lockstep/runtime/trainer/impl/log_file.h>
#include <lockstep/runtime/trainer/impl/trainer_impl.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "error_of.h"
#include "runtime/snapshot_runs.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"
#include "working_directory.h"

namespace lockstep {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<nlohmann::json> rows_of(const std::string& folder) {
  std::istringstream lines(text_of(folder + "/log.jsonl"));
  std::vector<nlohmann::json> rows;
  for (std::string line; std::getline(lines, line);) {
    rows.push_back(nlohmann::json::parse(line));
  }
  return rows;
}

std::vector<int64_t> updates_of(const std::string& folder) {
  std::vector<int64_t> updates;
  for (const auto& row : rows_of(folder)) {
    updates.push_back(row["update"]);
  }
  return updates;
}

/// A Trainer of a small network, and its steps.
struct LoggedRun {
  explicit LoggedRun(TrainerOptions options = {})
      : model((at::manual_seed(5), std::make_shared<Mlp>())),
        trainer(runtime(), model, SGD(0.01), std::move(options)) {}
  StepReport step(float factor = 1.0F) {
    return trainer.step([&] { return scaled_loss(*model, done++, factor); });
  }
  std::shared_ptr<Mlp> model;
  Trainer trainer;
  int64_t done = 0;
};

TEST(RunLog, HasARowForEveryNUpdatesWithWhatTheReportSays) {
  const SharedFolder folder;
  LoggedRun run;
  std::vector<StepReport> reports;
  {
    RunLog log(run.trainer, folder.file("log"), RunLogOptions().log_every(3).samples_per_update(8));
    for (int step = 0; step < 8; ++step) {
      reports.push_back(run.step());
      log.step(reports.back());
    }
  }
  meet();
  EXPECT_THAT(updates_of(folder.file("log")), ElementsAre(3, 6));
  const auto row = rows_of(folder.file("log"))[1];
  EXPECT_EQ(row["learning_rate"], 0.01);
  EXPECT_EQ(row["loss_scale"], 1.0);
  EXPECT_EQ(row["skipped_updates"], 0.0);
  EXPECT_EQ(row["gradient_norm"], reports[5].grad_norm());
  EXPECT_EQ(row["mean_loss"], reports[5].mean_loss());
  if (runtime().is_main()) {
    EXPECT_EQ(row["loss"], reports[5].loss());
  }
  EXPECT_NEAR(row["samples_per_second"].get<double>() / row["updates_per_second"].get<double>(),
              8.0, 1e-9);
  EXPECT_GT(row["host_memory_mib"], 1.0);
  EXPECT_GE(row["exposed_communication_share"], 0.0);
  EXPECT_LE(row["exposed_communication_share"], 1.0);
  EXPECT_FALSE(row.contains("data_wait_share"));
}

TEST(RunLog, CsvHasOneValueOnALine) {
  const SharedFolder folder;
  LoggedRun run;
  {
    RunLog log(run.trainer, folder.file("log"), RunLogOptions().log_every(1).jsonl(false));
    log.step(run.step());
    log.log("one, \"two\"", 0.1);
  }
  meet();
  const std::string text = text_of(folder.file("log/log.csv"));
  EXPECT_EQ(text.rfind("update,time,name,value\n1,", 0), 0U) << text;
  EXPECT_THAT(text, HasSubstr(",learning_rate,0.01"));
  EXPECT_THAT(text, HasSubstr(",\"one, \"\"two\"\"\",0.10000000000000001\n"));
  EXPECT_FALSE(std::filesystem::exists(folder.file("log/log.jsonl")));
}

TEST(RunLog, CountsSkipsAndWritesNoNumberForNaN) {
  const SharedFolder folder;
  LoggedRun run(TrainerOptions().precision(testing::half_precision()));
  {
    RunLog log(run.trainer, folder.file("log"), RunLogOptions().log_every(1));
    log.step(run.step());
    log.step(run.step(testing::overflow_factor));
  }
  meet();
  const auto rows = rows_of(folder.file("log"));
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_EQ(rows[1]["update"], 1);
  EXPECT_EQ(rows[1]["skipped_updates"], 1.0);
  EXPECT_TRUE(rows[1]["gradient_norm"].is_null());
  EXPECT_EQ(rows[1]["loss_scale"], 256.0);
}

TEST(RunLog, AWindowOfSeveralMicroBatchesIsOneUpdate) {
  const SharedFolder folder;
  LoggedRun run(TrainerOptions().accumulate(2));
  {
    RunLog log(run.trainer, folder.file("log"), RunLogOptions().log_every(2));
    for (int step = 0; step < 8; ++step) {
      log.step(run.step());
    }
  }
  meet();
  EXPECT_THAT(updates_of(folder.file("log")), ElementsAre(2, 4));
}

TEST(RunLog, ValuesOfTheProgramBelongToTheLastUpdate) {
  const SharedFolder folder;
  LoggedRun run;
  {
    RunLog log(run.trainer, folder.file("log"), RunLogOptions().log_every(100));
    log.log("before", 1.0);
    log.step(run.step());
    log.step(run.step());
    log.log("validation/loss", 0.5);
    log.step(run.step());
    log.flush();
  }
  meet();
  const auto rows = rows_of(folder.file("log"));
  ASSERT_THAT(rows, SizeIs(2));
  EXPECT_EQ(rows[0]["update"], 0);
  EXPECT_EQ(rows[0]["before"], 1.0);
  EXPECT_EQ(rows[1]["update"], 2);
  EXPECT_EQ(rows[1]["validation/loss"], 0.5);
}

TEST(RunLog, HasTheNormsOfEachParameterIfAsked) {
  const auto options = {TrainerOptions(), TrainerOptions().accumulate(2),
                        TrainerOptions().precision(testing::half_precision()),
                        TrainerOptions().precision(Precision::O1(at::kBFloat16))};
  for (const TrainerOptions& each : options) {
    const SharedFolder folder;
    LoggedRun run(each);
    {
      RunLog log(run.trainer, folder.file("log"), RunLogOptions().log_every(1).layers(true));
      for (int64_t step = 0; step < each.accumulate(); ++step) {
        log.step(run.step());
      }
    }
    meet();
    const auto row = rows_of(folder.file("log")).at(0);
    double squares = 0.0;
    for (const auto& [name, weight] : run.model->named_parameters().pairs()) {
      squares += std::pow(row["gradient_norm/" + name].get<double>(), 2);
      EXPECT_DOUBLE_EQ(row["weight_norm/" + name], weight.to(at::kDouble).norm().item<double>());
    }
    EXPECT_NEAR(std::sqrt(squares) / row["gradient_norm"].get<double>(), 1.0, 1e-6);
  }
}

TEST(RunLog, GradientNormsOfASkippedUpdateAreNoNumbers) {
  const SharedFolder folder;
  LoggedRun run(TrainerOptions().precision(testing::half_precision()));
  {
    RunLog log(run.trainer, folder.file("log"), RunLogOptions().log_every(1).layers(true));
    log.step(run.step());
    log.step(run.step(testing::overflow_factor));
  }
  meet();
  const auto row = rows_of(folder.file("log")).at(1);
  EXPECT_TRUE(row["gradient_norm/first.weight"].is_null());
  EXPECT_GT(row["weight_norm/first.weight"], 0.0);
}

TEST(RunLog, NormsOfGradientsThatNoRankHasAreRefused) {
  const SharedFolder folder;
  const auto error_with = [&](const TrainerOptions& options) {
    LoggedRun run(options);
    return error_of([&] { RunLog(run.trainer, folder.file("log"), RunLogOptions().layers(true)); });
  };
  EXPECT_THAT(error_with(TrainerOptions().shard_optimizer(true)),
              HasSubstr("layers(true) does not go with TrainerOptions::shard_optimizer"));
  EXPECT_THAT(error_with(TrainerOptions().local_updates(LocalUpdates(2))),
              HasSubstr("layers(true) does not go with TrainerOptions::local_updates"));
}

TEST(RunLog, TellsHowMuchOfTheTimeTheLoopWaitedForData) {
  const SharedFolder folder;
  LoggedRun run;
  auto loader = runtime().loader(testing::Numbered{64}, LoaderOptions().batch_size(4));
  {
    RunLog log(run.trainer, folder.file("log"), RunLogOptions().log_every(2));
    log.watch(loader);
    for (auto& batch : loader) {
      static_cast<void>(batch);
      log.step(run.step());
    }
  }
  meet();
  const double share = rows_of(folder.file("log")).back()["data_wait_share"];
  EXPECT_GT(share, 0.0);
  EXPECT_LT(share, 1.0);
}

TEST(RunLog, SaysWhichRankNeededLongestAndHowMuchLonger) {
  const SharedFolder folder;
  LoggedRun run;
  const int last = runtime().size() - 1;
  {
    RunLog log(run.trainer, folder.file("log"), RunLogOptions().log_every(1));
    log.step(run.step());
    auto& watch = run.trainer.impl().stragglers;
    const double busy = runtime().rank() == last ? 3e9 : 1e9;  // seconds, beside which a step is 0
    for (int64_t update = 2; update < detail::StragglerWatch::kUpdates; ++update) {
      watch.add({busy, 3e9 - busy});
    }
    log.step(run.step());
    log.step(run.step());
  }
  meet();
  const auto rows = rows_of(folder.file("log"));
  ASSERT_THAT(rows, SizeIs(3));
  for (const size_t row : {0, 1, 2}) {
    EXPECT_EQ(rows[row].contains("slowest_rank"), row == 1 && last > 0) << row;
    EXPECT_EQ(rows[row].contains("slowest_rank_ratio"), row == 1 && last > 0) << row;
  }
  if (last > 0) {
    EXPECT_EQ(rows[1]["slowest_rank"], last);
    EXPECT_NEAR(rows[1]["slowest_rank_ratio"].get<double>(), 3.0, 1e-6);
  }
}

TEST(RunLog, AResumedRunContinuesBehindItsSnapshotAndSetsLostRowsAside) {
  const SharedFolder folder;
  const auto options =
      TrainerOptions().snapshots(SnapshotOptions().folder(folder.file("run")).asynchronous(false));
  const RunLogOptions each = RunLogOptions().log_every(1);
  {
    LoggedRun run(options);
    RunLog log(run.trainer, folder.file("log"), each);
    for (int step = 1; step <= 5; ++step) {
      log.step(run.step());
      if (step == 3) {
        run.trainer.save();
      }
    }
  }
  meet();
  if (runtime().is_main()) {  // as a killed process leaves it
    std::ofstream(folder.file("log/log.jsonl"), std::ios::app) << "{\"update\":2,\"ti";
  }
  meet();
  {
    LoggedRun run(options);
    RunLog log(run.trainer, folder.file("log"), each);  // also before resume()
    run.trainer.resume(folder.file("run"));
    log.step(run.step());
  }
  meet();
  EXPECT_THAT(updates_of(folder.file("log")), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(text_of(folder.file("log/log.jsonl.aside")), HasSubstr("{\"update\":5,"));
  const std::string csv = text_of(folder.file("log/log.csv"));
  EXPECT_EQ(csv.find("\n5,"), std::string::npos);
  EXPECT_EQ(csv.rfind("update,"), 0U);  // one header
}

TEST(RunLog, OfARelativeFolderStaysWhereItWas) {
  const SharedFolder folder;
  const testing::WorkingDirectory start(folder.file(""));
  LoggedRun run(TrainerOptions().digest_log("digests.jsonl"));
  RunLog log(run.trainer, "log", RunLogOptions().log_every(1).csv(true));
  detail::LogFile rows(std::to_string(runtime().rank()) + ".csv");
  {
    const testing::WorkingDirectory elsewhere("elsewhere");
    rows.append("1,a\n2,b\n");
    EXPECT_EQ(rows.keep_until(1), "");
    EXPECT_THAT(snapshot::names_in("."), IsEmpty());
  }
  EXPECT_EQ(text_of(std::to_string(runtime().rank()) + ".csv"), "1,a\n");
  meet();
}

TEST(RunLog, PythonReadsWhatAResumedRunWrote) {
  const SharedFolder folder;
  const auto options =
      TrainerOptions().snapshots(SnapshotOptions().folder(folder.file("run")).asynchronous(false));
  for (const int last : {5, 4}) {  // the second run resumes after update 3
    LoggedRun run(options);
    run.trainer.resume(folder.file("run"));
    RunLog log(run.trainer, folder.file("log"), RunLogOptions().log_every(1));
    for (int64_t update = run.trainer.updates() + 1; update <= last; ++update) {
      log.step(run.step());
      log.log("validation/loss", 0.125 * static_cast<double>(last));
      if (update == 3) {
        run.trainer.save();
      }
    }
  }
  meet();
  if (runtime().is_main()) {
    const std::string command = std::string(LOCKSTEP_TEST_PYTHON) + " -B " + RUN_LOG_READER + " " +
                                folder.file("log") + " > " + folder.file("said") + " 2>&1";
    const int code = std::system(command.c_str());
    EXPECT_EQ(code, 0) << text_of(folder.file("said"));
    std::cout << text_of(folder.file("said"));
  }
  meet();
}

TEST(RunLog, TextsHistogramsAndImagesAreForTensorBoard) {
  const SharedFolder folder;
  LoggedRun run;
  {
    RunLog log(run.trainer, folder.file("log"));
    log.step(run.step());
    log.log_text("sample", "two\nlines");
    at::Tensor values = at::arange(128, at::kFloat);
    values[127] = std::numeric_limits<float>::infinity();
    log.log_histogram("values", values.to(testing::device()));
    log.log_histogram("equal", at::ones({3}, at::kLong));
    log.log_histogram("none", at::empty({0}));
    const at::Tensor red = at::stack({at::ones({2, 5}), at::zeros({2, 5}), at::full({2, 5}, 0.5)});
    log.log_image("picture", red.to(testing::device()));
    log.log_image("grey", at::full({4, 3}, 7, at::kByte));
    EXPECT_THAT(
        error_of([&] {
          log.log_image("odd", at::ones({2, 4, 4}));
        }),
        AllOf(HasSubstr("\"odd\""), HasSubstr("[3, height, width]"), HasSubstr("[2, 4, 4]")));
    EXPECT_THAT(error_of([&] { log.log_histogram("odd", at::ones({2}, at::kComplexFloat)); }),
                HasSubstr("is complex"));
  }
  meet();
  if (runtime().is_main()) {
    const std::string command = std::string(LOCKSTEP_TEST_PYTHON) + " -B " + RUN_LOG_READER +
                                " --figures " + folder.file("log") + " > " + folder.file("said") +
                                " 2>&1";
    EXPECT_EQ(std::system(command.c_str()), 0) << text_of(folder.file("said"));
  }
  meet();
}

TEST(RunLog, EveryRankWritesItsOwnIfAsked) {
  const SharedFolder folder;
  LoggedRun run;
  double loss = 0.0;
  {
    RunLog log(run.trainer, folder.file("log"), RunLogOptions().log_every(1).every_rank(true));
    const StepReport report = run.step();
    log.step(report);
    loss = report.loss();
  }
  meet();
  const auto rows = rows_of(folder.file("log/rank" + std::to_string(runtime().rank())));
  ASSERT_THAT(rows, SizeIs(1));
  EXPECT_EQ(rows[0]["loss"], loss);
  EXPECT_FALSE(std::filesystem::exists(folder.file("log/log.jsonl")));
}

TEST(RunLog, AFullDiskIsNamedOnceAndTrainingGoesOn) {
  const SharedFolder folder;
  if (runtime().is_main()) {
    std::filesystem::create_directories(folder.file("log"));
    std::filesystem::create_symlink("/dev/full", folder.file("log/log.csv"));
  }
  meet();
  LoggedRun run;
  ::testing::internal::CaptureStderr();
  {
    RunLog log(run.trainer, folder.file("log"), RunLogOptions().log_every(1));
    for (int step = 0; step < 3; ++step) {
      log.step(run.step());
    }
  }
  const std::string said = ::testing::internal::GetCapturedStderr();
  meet();
  EXPECT_EQ(run.trainer.updates(), 3);
  EXPECT_THAT(updates_of(folder.file("log")), ElementsAre(1, 2, 3));
  if (runtime().is_main()) {
    EXPECT_THAT(said, AllOf(HasSubstr(folder.file("log/log.csv") + ": cannot be written: No space"),
                            HasSubstr("training goes on")));
    EXPECT_EQ(said.find("cannot be written"), said.rfind("cannot be written"));
  } else {
    EXPECT_THAT(said, IsEmpty());
  }
}

TEST(RunLog, AFolderThatCannotBeMadeIsAnErrorOnEveryRank) {
  const SharedFolder folder;
  LoggedRun run;
  EXPECT_THAT(error_of([&] { const RunLog log(run.trainer, "/proc/no/such", {}); }),
              AllOf(HasSubstr("rank 0"), HasSubstr("/proc/no/such")));
  EXPECT_THAT(error_of([&] {
                const RunLog log(run.trainer, folder.file("log"), RunLogOptions().log_every(0));
              }),
              HasSubstr("log_every must be >= 1"));
}

}  // namespace
}  // namespace lockstep
