// Loads that match nothing, or only under another prefix, and tensors that no file can hold.
#include "checkpointing/snapshot_rejected.h"
#include "runtime/temporary_folder.h"
#include "test_names.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/impl/content.h>
#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/checkpointing/snapshot/impl/model_files.h>
#include <lockstep/checkpointing/snapshot/load.h>
#include <lockstep/checkpointing/snapshot/safetensors_writer.h>
#include <lockstep/collectives/exceptions.h>

#include <string>
#include <utility>
#include <vector>

namespace lockstep::snapshot {
namespace {

using Names = std::vector<std::string>;

NamedTensors ones(const Names& names, const std::string& prefix = "") {
  NamedTensors tensors;
  for (const std::string& name : names) {
    tensors.emplace_back(prefix + name, at::ones({2}));
  }
  return tensors;
}

NamedTensors zeros(const Names& names, const std::string& prefix = "") {
  NamedTensors tensors = ones(names, prefix);
  for (auto& [name, tensor] : tensors) {
    tensor = at::zeros({2});
  }
  return tensors;
}

struct Loads {
  TemporaryFolder folder;
  LoadOptions options;

  std::string refused(const NamedTensors& saved, const NamedTensors& targets) const {
    save_safetensors(folder.file("w"), saved);
    const std::string text =
        rejection_of([&] { load_tensors(ModelFiles(folder.file("w")), targets, options); });
    for (const auto& [name, target] : targets) {
      EXPECT_EQ(target.abs().sum().item<double>(), 0.0) << name;
    }
    return text;
  }
};

const Names kNames = {"first.weight", "first.bias", "second.weight", "second.bias"};

TEST(Load, ThatMatchesNothingIsAnErrorHoweverLenient) {
  Loads loads;
  loads.options.match = Match::partial;
  EXPECT_THAT(loads.refused(ones({"x", "y"}), zeros({"first.weight"})),
              AllOf(HasSubstr("nothing was loaded"), HasSubstr("missing (1)"), HasSubstr("  x")));
  // The names are there, the sizes are not.
  EXPECT_THAT(loads.refused({{"w", at::ones({3})}}, zeros({"w"})),
              AllOf(HasSubstr("nothing was loaded"), HasSubstr("[3]")));
  EXPECT_THAT(loads.refused({}, zeros({"w"})), HasSubstr("nothing was loaded"));
}

TEST(Load, OfOneTensorOfManyIsWhatPartialMeans) {
  Loads loads;
  loads.options.match = Match::partial;
  save_safetensors(loads.folder.file("w"), ones({"first.bias", "x"}));
  const NamedTensors targets = zeros(kNames);
  EXPECT_THAT(load_tensors(ModelFiles(loads.folder.file("w")), targets, loads.options).loaded,
              ElementsAre("first.bias"));
}

TEST(Load, ThatWantsNothingIsNoError) {
  Loads loads;
  loads.options.match = Match::partial;
  loads.options.name_in_source = [](const std::string&) { return std::string(); };
  save_safetensors(loads.folder.file("w"), ones({"x", "y"}));
  const ModelFiles source(loads.folder.file("w"));
  EXPECT_THAT(load_tensors(source, zeros(kNames), loads.options).unexpected, ElementsAre("x", "y"));
  EXPECT_THAT(load_tensors(source, {}, loads.options).loaded, IsEmpty());
}

TEST(Load, NamesTheOptionThatAddsThePrefixOfTheSource) {
  for (const Match match : {Match::strict, Match::partial}) {
    for (const char* prefix :
         {"module.", "_orig_mod.", "model.", "module._orig_mod.", "net/", "ema_", "a.b.c."}) {
      Loads loads;
      loads.options.match = match;
      const std::string text = loads.refused(ones(kNames, prefix), zeros(kNames));
      EXPECT_THAT(text, AllOf(HasSubstr("name_in_source"),
                              HasSubstr("return \"" + std::string(prefix) + "\" + name;"),
                              Not(HasSubstr("Match::partial"))));
    }
  }
}

TEST(Load, TheAdviceOfAPrefixWorks) {
  Loads loads;
  loads.refused(ones(kNames, "module."), zeros(kNames));
  loads.options.name_in_source = [](const std::string& name) { return "module." + name; };
  EXPECT_EQ(
      load_tensors(ModelFiles(loads.folder.file("w")), zeros(kNames), loads.options).loaded.size(),
      4U);
  loads.options.name_in_source = nullptr;
  loads.refused(ones(kNames), zeros(kNames, "net."));
  loads.options.name_in_source = [](const std::string& name) {
    return name.rfind("net.", 0) == 0 ? name.substr(4) : name;
  };
  EXPECT_EQ(load_tensors(ModelFiles(loads.folder.file("w")), zeros(kNames, "net."), loads.options)
                .loaded.size(),
            4U);
}

TEST(Load, NamesTheOptionThatTakesThePrefixOfTheModelAway) {
  for (const Match match : {Match::strict, Match::partial}) {
    Loads loads;
    loads.options.match = match;
    EXPECT_THAT(
        loads.refused(ones(kNames), zeros(kNames, "backbone.")),
        AllOf(HasSubstr("name_in_source"),
              HasSubstr("return name.rfind(\"backbone.\", 0) == 0 ? name.substr(9) : name;"),
              Not(HasSubstr("Match::partial"))));
  }
}

TEST(Load, APrefixOfMostNamesIsSeenBesideOthers) {
  Loads loads;
  NamedTensors saved = ones(kNames, "model.");
  saved.emplace_back("optimizer.step", at::ones({2}));
  NamedTensors targets = zeros(kNames);
  targets.emplace_back("head.weight", at::zeros({2}));
  EXPECT_THAT(loads.refused(saved, targets), HasSubstr("return \"model.\" + name;"));
}

TEST(Load, NamesUnderAPrefixThatNameInSourceLeavesOutAreSeen) {
  Loads loads;
  loads.options.name_in_source = [](const std::string& name) { return "net." + name; };
  EXPECT_THAT(loads.refused(ones(kNames, "module.net."), zeros(kNames)),
              AllOf(HasSubstr("\"module.\""), HasSubstr("name_in_source")));
}

TEST(Load, WithoutACommonPrefixAdvisesNone) {
  Loads loads;
  EXPECT_THAT(loads.refused(ones({"first.weight", "x"}), zeros({"first.weight", "y"})),
              AllOf(HasSubstr("Match::partial"), Not(HasSubstr("name_in_source"))));
  EXPECT_THAT(loads.refused(ones({"a", "b", "c"}), zeros({"k", "l", "m"})),
              Not(HasSubstr("return ")));
}

/// What no safetensors file can hold, each under its name.
NamedTensors not_storable() {
  const std::string not_utf8 = "bad\xff name";
  return {{"twiddle", at::ones({2}, at::kComplexDouble)},
          {"codes", at::quantize_per_tensor(at::ones({2}), 0.5, 0, at::kQInt8)},
          {"sparse", at::ones({2, 2}).to_sparse()},
          {"undefined", at::Tensor()},
          {"__metadata__", at::ones({2})},
          {"", at::ones({2})},
          {not_utf8, at::ones({2})},
          {std::string(4097, 'n'), at::ones({2})},
          {"deep", at::ones({1, 1, 1, 1, 1, 1, 1, 1, 1})}};
}

TEST(Storable, WhatAFileCannotHoldIsRefusedByItsName) {
  const TemporaryFolder folder;
  for (const auto& [name, tensor] : not_storable()) {
    const std::string shown = "\"" + name.substr(0, 40);
    EXPECT_THAT(rejection_of([&, &key = name, &value = tensor] {
                  save_safetensors(folder.file("w"), {{"whole", at::ones({2})}, {key, value}});
                }),
                HasSubstr(shown));
    EXPECT_THAT(names_in(folder.path()), IsEmpty());
  }
  save_safetensors(folder.file("w"), {{std::string(4096, 'n'), at::ones({2}, at::kComplexFloat)}});
}

TEST(Storable, ContentRefusesItBeforeASaveBegins) {
  for (const auto& [name, tensor] : not_storable()) {
    const std::string shown = "\"" + name.substr(0, 40);
    const auto refused = [&](const std::function<void(Content&)>& add) {
      Content content;
      try {
        add(content);
        ADD_FAILURE() << name;
      } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr(shown));
      }
    };
    refused([&, &key = name, &value = tensor](Content& c) { c.add("model", key, value); });
    refused([&, &key = name, &value = tensor](Content& c) { c.add_own("own", key, value); });
  }
}

}  // namespace
}  // namespace lockstep::snapshot
