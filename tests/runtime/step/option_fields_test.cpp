// What ranks compare of their options: every field, and only the difference is told.
#include <gmock/gmock.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/step/impl/option_fields.h>
#include <lockstep/runtime/train_epochs.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <regex>
#include <thread>

#include "error_of.h"
#include "test_names.h"

namespace lockstep::detail {
namespace {

using lockstep::testing::error_of;

/// The options that a header declares, but for those of structs other than `of`.
std::vector<std::string> declared_options(const std::string& header, const std::string& of) {
  std::ifstream file(std::string(LOCKSTEP_SOURCES) + "/" + header);
  EXPECT_TRUE(file.is_open()) << header;
  std::vector<std::string> names;
  bool inside = false;
  const std::regex option(R"(TORCH_ARG\(.*, (\w+)\))");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("struct ", 0) == 0) {
      inside = line.find("struct " + of + " ") == 0;
    }
    std::smatch match;
    if (inside && std::regex_search(line, match, option)) {
      names.push_back(match[1]);
    }
  }
  EXPECT_FALSE(names.empty()) << header;
  return names;
}

void expect_fields(const std::vector<OptionRow>& rows, const std::string& prefix,
                   const std::string& header, const std::string& of) {
  for (const std::string& name : declared_options(header, of)) {
    const bool found = std::any_of(rows.begin(), rows.end(), [&](const OptionRow& row) {
      return row.name == prefix + name || row.name.rfind(prefix + name + ".", 0) == 0;
    });
    EXPECT_TRUE(found) << of << "::" << name << " is not in the list";
  }
}

TrainerOptions with_all_parts() {
  return TrainerOptions()
      .precision(Precision::O0().loss_scale({}))
      .local_updates(LocalUpdates(1))
      .reduce_on_plateau(ReduceOnPlateau());
}

TEST(OptionLists, HaveEveryOptionThatAHeaderDeclares) {
  const auto fields = rows_of(with_all_parts());
  expect_fields(fields, "", "runtime/step/trainer_options.h", "TrainerOptions");
  expect_fields(fields, "snapshots.", "checkpointing/snapshot/snapshot_options.h",
                "SnapshotOptions");
  expect_fields(fields, "snapshots.keep.", "checkpointing/snapshot/snapshot_options.h",
                "KeepOptions");
  expect_fields(fields, "buckets.", "runtime/storage/policies.h", "BucketOptions");
  expect_fields(fields, "local_updates.", "runtime/step/local_updates.h", "LocalUpdates");
  expect_fields(fields, "reduce_on_plateau.", "runtime/step/reduce_on_plateau.h",
                "ReduceOnPlateau");
  expect_fields(fields, "precision.loss_scale.", "amp/loss_scaler_options.h", "LossScalerOptions");
  expect_fields(rows_of(DataParallelOptions()), "", "runtime/step/data_parallel.h",
                "DataParallelOptions");
  expect_fields(rows_of(EpochOptions()), "", "runtime/loop/train_epochs.h", "EpochOptions");
}

template <typename Options>
std::string table_of(const std::string& title, const Options& options) {
  std::string text = "## " + title + "\n| option | here | values |\n|---|---|---|\n";
  for (const OptionRow& row : rows_of(options)) {
    text += "| " + row.name + " | " + row.value + " | " + row.values +
            (row.rule.differs.empty() ? "" : "may differ between ranks: ") +
            std::string(row.rule.differs) + " |\n";
  }
  return text + "\n";
}

TEST(OptionLists, AreTheTablesOfTheDocument) {
  std::string tables =
      table_of("TrainerOptions", with_all_parts()) +
      table_of("DataParallelOptions", DataParallelOptions()) +
      table_of("EpochOptions", EpochOptions()) +
      "## Pairs that a Trainer refuses\n| option | with | because |\n|---|---|---|\n";
  for (const RefusedPair& pair : refused_pairs()) {
    const bool ends = pair.why.back() != ' ';
    tables += "| " + pair.option + " | " + pair.with + (pair.values.empty() ? "" : " ") +
              pair.values + " | " + (ends ? pair.why : pair.why.substr(0, pair.why.size() - 5)) +
              " |\n";
  }
  std::ifstream file(std::string(LOCKSTEP_SOURCES) + "/docs/options.md");
  const std::string document{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(document.find("\n" + tables), std::string::npos)
      << "docs/options.md must have these tables:\n"
      << tables;
}

/// Each number of the options that has a range is made one that is in no range.
template <typename Options>
void expect_ranges(const Options& valid) {
  require_ranges(rows_of(valid));
  for (const OptionRow& row : rows_of(valid)) {
    if (!row.number || std::string(row.rule.range).empty()) {
      continue;
    }
    for (const double value : {-1.0, std::nan("")}) {
      Options changed = valid;
      for_each_option(changed, [&](const std::string& name, auto& option, auto&&...) {
        using Option = std::decay_t<decltype(option)>;
        if constexpr (std::is_same_v<Option, double>) {
          option = name == row.name ? value : option;
        } else if constexpr (std::is_same_v<Option, int64_t>) {
          option = name == row.name ? -1 : option;
        }
      });
      const std::string own = row.name.substr(row.name.rfind('.') + 1);
      EXPECT_THAT(error_of([&] { require_ranges(rows_of(changed)); }),
                  AllOf(HasSubstr("." + own + " must be " + row.rule.range + ", is ")))
          << row.name;
    }
  }
}

TEST(OptionLists, RefuseNumbersOutOfRange) {
  expect_ranges(with_all_parts());
  expect_ranges(EpochOptions());
  EXPECT_EQ(error_of([] { require_ranges(rows_of(LocalUpdates(2).outer_momentum(1.0))); }),
            "LocalUpdates.outer_momentum must be >= 0 and < 1, is 1");
  EXPECT_NO_THROW(require_ranges(rows_of(LocalUpdates(2).outer_momentum(0.0))));
}

TEST(OptionLists, RefusedPairsNameOptionsAndTheirValues) {
  const auto rows = rows_of(with_all_parts());
  for (const RefusedPair& pair : refused_pairs()) {
    for (const std::string& name : {pair.option, pair.with}) {
      EXPECT_TRUE(std::any_of(rows.begin(), rows.end(), [&](const OptionRow& row) {
        return row.name == name;
      })) << name;
    }
  }
  EXPECT_EQ(error_of([] { TrainerOptions().cuda_graph(true).accumulate(3).validate(); }),
            "TrainerOptions.cuda_graph: a window is captured whole; accumulate must be 1, is 3");
  EXPECT_THAT(error_of([] {
                TrainerOptions().cuda_graph(true).unused(UnusedParameters::detect).validate();
              }),
              HasSubstr("the host decides what is updated"));
  EXPECT_NO_THROW(TrainerOptions().cuda_graph(true).unused(UnusedParameters::zeros).validate());
  EXPECT_THAT(error_of([] { TrainerOptions().leaves(4).validate(); }),
              HasSubstr("TrainerOptions.leaves needs reproducible(true)"));
}

TEST(OptionLists, DescribeWhatTheResultsDependOn) {
  TrainerOptions options;
  options.digest_log("log").diagnosis_folder("bad");
  options.snapshots(SnapshotOptions().folder("runs"));
  EXPECT_EQ(options.describe(), TrainerOptions().describe());
  options.accumulate(3).local_updates(LocalUpdates(7));
  EXPECT_THAT(options.describe(),
              AllOf(HasSubstr(", accumulate 3, "), HasSubstr(", clip_grad_norm none, "),
                    HasSubstr(", local_updates.updates 7, "), Not(HasSubstr("runs"))));
}

struct Case {
  const char* field;
  std::function<void(TrainerOptions&)> change;
};

/// Changes of options whose ranks would go different ways, or write different files.
std::vector<Case> cases() {
  const auto snapshots = [](auto change) {
    return [change](TrainerOptions& options) {
      SnapshotOptions inner = options.snapshots();
      change(inner);
      options.snapshots(inner);
    };
  };
  const auto precision = [](auto change) {
    return [change](TrainerOptions& options) { options.precision(change(options.precision())); };
  };
  const auto scaler = [&](auto change) {
    return precision([change](const Precision& inner) {
      amp::LossScalerOptions scale;
      change(scale);
      return inner.loss_scale(scale);
    });
  };
  return {
      {"accumulate", [](auto& o) { o.accumulate(2); }},
      {"clip_grad_norm", [](auto& o) { o.clip_grad_norm(1.0); }},
      {"clip_grad_norm", [](auto& o) { o.clip_grad_norm(1.0 + 1e-15); }},
      {"clip_grad_value", [](auto& o) { o.clip_grad_value(1.0); }},
      {"digest_log", [](auto& o) { o.digest_log("digests.jsonl"); }},
      {"digest_every", [](auto& o) { o.digest_every(3); }},
      {"activation_budget", [](auto& o) { o.activation_budget("1 MiB"); }},
      {"activation_budget", [](auto& o) { o.activation_budget(1048577); }},
      {"schedule", [](auto& o) { o.schedule(StepDecay(3)); }},
      {"unused", [](auto& o) { o.unused(UnusedParameters::zeros); }},
      {"buffers", [](auto& o) { o.buffers(BufferPolicy::none); }},
      {"buckets.bucket_bytes", [](auto& o) { o.buckets(BucketOptions().bucket_bytes(64)); }},
      {"reduce_on_plateau", [](auto& o) { o.reduce_on_plateau(ReduceOnPlateau()); }},
      {"local_updates", [](auto& o) { o.local_updates(LocalUpdates(4)); }},
      {"snapshots.folder", snapshots([](auto& s) { s.folder("elsewhere"); })},
      {"snapshots.asynchronous", snapshots([](auto& s) { s.asynchronous(false); })},
      {"snapshots.min_shard_bytes", snapshots([](auto& s) { s.min_shard_bytes(1); })},
      {"snapshots.memory_every", snapshots([](auto& s) { s.memory_every(2); })},
      {"snapshots.memory_folder", snapshots([](auto& s) { s.memory_folder("/tmp"); })},
      {"snapshots.keep.last", snapshots([](auto& s) { s.keep(KeepOptions().last(5)); })},
      {"snapshots.keep.best", snapshots([](auto& s) { s.keep(KeepOptions().best(0)); })},
      {"precision.level", precision([](const Precision&) { return Precision::O1(at::kBFloat16); })},
      {"precision.wire", precision([](const Precision& p) { return p.wire(at::kFloat); })},
      {"precision.predivide", precision([](const Precision& p) { return p.predivide(4); })},
      {"precision.keep_fp32", precision([](const Precision& p) { return p.keep_fp32("wo"); })},
      {"precision.loss_scale.growth_interval", scaler([](auto& s) { s.growth_interval(7); })},
      {"precision.loss_scale.max_consecutive_skips",
       scaler([](auto& s) { s.max_consecutive_skips(7); })},
  };
}

/// What each of two ranks says of its options.
std::vector<std::string> errors_of(const TrainerOptions& first, const TrainerOptions& second) {
  const auto ranks = Communicator::threads(2);
  std::vector<std::string> errors(2);
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        require_same_fields("the Trainer", fields_of(rank == 0 ? first : second),
                            Agreement(ranks[rank]));
      } catch (const Error& error) {
        errors[rank] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  return errors;
}

TEST(OptionFields, ThatDifferAreNamedAloneOnEveryRank) {
  for (const Case& each : cases()) {
    SCOPED_TRACE(each.field);
    TrainerOptions changed;
    each.change(changed);
    for (const bool first : {true, false}) {
      const auto errors =
          errors_of(first ? changed : TrainerOptions(), first ? TrainerOptions() : changed);
      EXPECT_THAT(errors[0], AllOf(HasSubstr("the options of the Trainer differ between ranks"),
                                   HasSubstr(std::string("\n  ") + each.field + " is "),
                                   HasSubstr("on rank 0"), HasSubstr("on rank 1"),
                                   Not(HasSubstr("compare_replicas_every"))));
      EXPECT_EQ(errors[0], errors[1]);
    }
  }
}

TEST(OptionFields, ThatMayDifferPass) {
  EXPECT_THAT(errors_of(TrainerOptions(), TrainerOptions().diagnosis_folder("of_this_node")),
              ::testing::Each(""));
}

TEST(OptionFields, OfAStructThatSomeRanksDoNotSetAreNotTold) {
  const auto errors = errors_of(TrainerOptions(), TrainerOptions().local_updates(LocalUpdates(4)));
  EXPECT_EQ(errors[0],
            "the options of the Trainer differ between ranks:\n  local_updates is set on rank 1, "
            "unset on rank 0\nPass the same options on every rank");
}

TEST(OptionFields, ThatAreEqualPass) {
  for (const Case& each : cases()) {
    TrainerOptions changed;
    each.change(changed);
    EXPECT_THAT(errors_of(changed, changed), ::testing::Each("")) << each.field;
  }
}

}  // namespace
}  // namespace lockstep::detail
