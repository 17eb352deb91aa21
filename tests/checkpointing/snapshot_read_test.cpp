#include "checkpointing/snapshot_python.h"
#include "checkpointing/snapshot_rejected.h"
#include "checkpointing/snapshot_sample.h"
#include "collectives/thread_ranks.h"
#include "least_time.h"
#include "runtime/temporary_folder.h"
#include "test_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/impl/folder_names.h>
#include <lockstep/checkpointing/snapshot/impl/mapped_file.h>
#include <lockstep/checkpointing/snapshot/impl/model_files.h>
#include <lockstep/checkpointing/snapshot/impl/writer.h>
#include <lockstep/checkpointing/snapshot/load.h>
#include <lockstep/checkpointing/snapshot/newest.h>
#include <lockstep/checkpointing/snapshot/safetensors_writer.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <string>
#include <vector>

namespace lockstep::snapshot {
namespace {

/// A folder with the snapshots of steps 1 and 2 of two ranks.
struct TwoSnapshots {
  TemporaryFolder folder;
  std::string newer = folder.file(step_folder(2));
  std::vector<std::string> files;  // of the newer one, the manifest last

  TwoSnapshots() {
    run_ranks(2, [&](Communicator& ranks) {
      Writer writer(ranks, folder.path(), WriterOptions().min_shard_bytes(1));
      writer.save(sample_content(1, ranks.rank(), 2), 1);
      writer.save(sample_content(2, ranks.rank(), 2), 2);
    });
    const Snapshot saved(newer);
    for (const auto& [name, record] : saved.manifest().files) {
      files.push_back(name);
    }
    files.emplace_back(kManifestName);
  }

  std::string read(const std::string& name) const {
    return std::string(MappedFile(newer + "/" + name).text());
  }
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(newer + "/" + name, std::ios::binary | std::ios::trunc) << content;
  }

  /// Loading falls back to the older one and says that this file is why.
  void expect_fallback(const std::string& name) const {
    Communicator solo = Communicator::solo();
    const Newest newest = find_newest(folder.path(), solo);
    ASSERT_TRUE(newest.snapshot.has_value());
    EXPECT_EQ(newest.snapshot->manifest().step, 1);
    ASSERT_EQ(newest.notes.size(), 2U);
    EXPECT_THAT(newest.notes[0], AllOf(HasSubstr("skipped "), HasSubstr("/" + name)));
    EXPECT_THAT(newest.notes[1], HasSubstr("`latest`"));
  }
};

TEST(SnapshotReading, AnyFlippedByteIsFoundAndNamesFileAndTensor) {
  const TwoSnapshots two;
  for (const std::string& name : two.files) {
    const std::string whole = two.read(name);
    uint64_t header = 0;
    whole.copy(reinterpret_cast<char*>(&header), 8);
    for (size_t byte = 0; byte < whole.size(); ++byte) {
      std::string damaged = whole;
      damaged[byte] = static_cast<char>(damaged[byte] ^ (1 << byte % 8));
      two.write(name, damaged);
      const std::string message = rejection_of([&] { Snapshot(two.newer).verify(); });
      EXPECT_THAT(message, HasSubstr(name)) << byte;
      if (name != kManifestName && byte >= 8 + header) {
        EXPECT_THAT(message, HasSubstr("tensor \"")) << byte;
      }
      if (::testing::Test::HasFailure()) {
        return;
      }
    }
    two.expect_fallback(name);
    two.write(name, whole);
  }
}

TEST(SnapshotReading, DamagedTensorIsNotReadEvenIfNobodyVerified) {
  const TwoSnapshots two;
  const std::string name = "random.rank-00001.safetensors";
  std::string damaged = two.read(name);
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  two.write(name, damaged);
  const Snapshot saved(two.newer);
  EXPECT_NO_THROW(saved.read_own("random", 0, "cpu"));
  EXPECT_THAT(rejection_of([&] { saved.read_own("random", 1, "cpu"); }),
              AllOf(HasSubstr(name), HasSubstr("tensor \"cpu\" is damaged")));
}

TEST(SnapshotReading, SnapshotTruncatedAtEvery64thByteIsSkipped) {
  const TwoSnapshots two;
  for (const std::string& name : two.files) {
    const std::string whole = two.read(name);
    for (size_t size = 0; size < whole.size(); size += 64) {
      two.write(name, whole.substr(0, size));
      two.expect_fallback(name);
    }
    ::unlink((two.newer + "/" + name).c_str());
    two.expect_fallback(name);
    two.write(name, whole);
  }
}

TEST(SnapshotReading, ManifestThatIsForeignOrInconsistentIsRejected) {
  const std::string file =
      R"({"section":"m","role":"whole","rank":0,"bytes":1,"header":"0123456789abcdef","tensors":{"w":"0123456789abcdef"}})";
  const std::string of_rank_2 =
      R"({"section":"m","role":"own","rank":2,"bytes":1,"header":"0123456789abcdef","tensors":{}})";
  const auto manifest = [&](const std::string& name, const std::string& value) {
    std::map<std::string, std::string> fields = {{"format", "\"lockstep snapshot\""},
                                                 {"schema", "1"},
                                                 {"run", "\"r\""},
                                                 {"step", "3"},
                                                 {"world_size", "2"},
                                                 {"metric", "null"},
                                                 {"texts", "{}"},
                                                 {"tied", "{}"},
                                                 {"files", "{\"m.safetensors\":" + file + "}"}};
    fields[name] = value;
    std::string text = "{";
    for (const auto& [key, field] : fields) {
      text += (text.size() > 1 ? ",\"" : "\"") + key + "\":" + field;
    }
    return text;
  };
  EXPECT_TRUE(Manifest::parse_unsealed(manifest("step", "4"), "m").lower_is_better);
  EXPECT_FALSE(Manifest::parse_unsealed(manifest("lower_is_better", "false"), "m").lower_is_better);
  const struct {
    const char* field;
    std::string value;
    const char* says;
  } cases[] = {
      {"format", "\"other\"", "format must be"},
      {"schema", "2", "use the version of lockstep"},
      {"schema", "\"1\"", "must be an integer"},
      {"step", "-3", "must be an integer"},
      {"step", "3.5", "must be an integer"},
      {"world_size", "0", "must be an integer"},
      {"metric", "\"low\"", "must be a number"},
      {"lower_is_better", "1", "must be true or false"},
      {"run", "7", "must be a text"},
      {"texts", "[]", "must be an object"},
      {"texts", "{\"a\":1}", "must be a text"},
      {"tied", "{\"m\":{\"v\":\"u\"}}", "is not stored"},
      {"tied", "{\"n\":{\"v\":\"w\"}}", "is not stored"},
      {"files", "7", "must be an object"},
      {"files", "{\"../m\":" + file + "}", "no plain file name"},
      {"files", "{\"/m\":" + file + "}", "no plain file name"},
      {"files", "{\"..\":" + file + "}", "no plain file name"},
      {"files", "{\"m\\u0000\":" + file + "}", "no plain file name"},
      {"files", "{\"m\":{}}", "is missing"},
      {"files", "{\"m\":" + of_rank_2 + "}", "written by 2 ranks, but has the file m of rank 2"},
      {"files", "{\"m\":" + file + ",\"m\":" + file + "}", "duplicate key"},
      {"step", "[[[[[[[[[1]]]]]]]]]", "nested deeper"},
  };
  for (const auto& [field, value, says] : cases) {
    EXPECT_THAT(rejection_of([&] { Manifest::parse_unsealed(manifest(field, value), "m"); }),
                HasSubstr(says))
        << field << " " << value;
  }
}

TEST(ManifestBounds, ManyTiedTensorsInManyFilesAreReadInLinearTime) {
  const auto time_of = [](int count) {
    std::string tied, files;
    for (int i = 0; i < count; ++i) {
      const std::string name = std::to_string(i);
      tied += (i == 0 ? "\"t" : ",\"t") + name + "\":\"w\"";
      files += (i == 0 ? "\"f" : ",\"f") + name +
               R"(":{"section":"m","role":"whole","rank":0,"bytes":1,"header":"0123456789abcdef",)"
               R"("tensors":{")" +
               (i + 1 == count ? "w" : name) + R"(":"0123456789abcdef"}})";
    }
    const std::string text =
        R"({"format":"lockstep snapshot","schema":1,"run":"r","step":3,"world_size":2,)"
        R"("metric":null,"texts":{},"tied":{"m":{)" +
        tied + R"(}},"files":{)" + files + "}";
    return testing::least_time([&] { Manifest::parse_unsealed(text, "m"); });
  };
  EXPECT_LE(time_of(4000), 3 * time_of(2000));
}

TEST(SnapshotReading, StrictLoadListsEverythingAtOnceAndChangesNothing) {
  const TemporaryFolder folder;
  save_safetensors(folder.file("a"), {{"kept", at::ones({2})},
                                      {"head.weight", at::ones({10, 2})},
                                      {"count", at::ones({1}, at::kLong)},
                                      {"extra.b", at::ones({1})},
                                      {"extra.a", at::ones({1})}});
  const ModelFiles source(folder.file("a"));
  const at::Tensor kept = at::zeros({2});
  const std::vector<std::pair<std::string, at::Tensor>> targets = {
      {"kept", kept},
      {"head.weight", at::zeros({3, 2})},
      {"count", at::zeros({1})},
      {"new.b", at::zeros({1})},
      {"new.a", at::zeros({1})}};
  const std::string message = rejection_of([&] { load_tensors(source, targets); });
  EXPECT_THAT(message, AllOf(HasSubstr("missing (2):\n  new.b\n  new.a"),
                             HasSubstr("unexpected (2):\n  extra.a\n  extra.b"),
                             HasSubstr("head.weight: saved with sizes [10, 2], wanted [3, 2]"),
                             HasSubstr("count: saved as Long, wanted as Float")));
  EXPECT_TRUE(at::equal(kept, at::zeros({2})));

  LoadOptions partial;
  partial.match = Match::partial;
  const LoadReport report = load_tensors(source, targets, partial);
  EXPECT_THAT(report.loaded, ElementsAre("kept"));
  EXPECT_THAT(report.missing, ElementsAre("new.b", "new.a"));
  EXPECT_EQ(report.misshapen.size(), 2U);
  EXPECT_TRUE(at::equal(kept, at::ones({2})));
}

TEST(SnapshotReading, TiedWeightsAreStoredOnceAndLoadUnderBothNames) {
  const TemporaryFolder folder;
  const at::Tensor shared = at::arange(6, at::kFloat).view({2, 3});
  Content content;
  content.add("model", "embed.weight", shared).add("model", "head.weight", shared);
  content.add("model", "transposed", shared.t()).add("model", "empty", at::empty({0}));
  content.add("model", "other.empty", at::empty({0}));
  Writer(Communicator::solo(), folder.path()).save(content, 1);
  const Snapshot saved(folder.file(step_folder(1)));
  const auto& stored = saved.manifest().files.at("model.safetensors").tensors;
  EXPECT_EQ(stored.count("embed.weight"), 1U);
  EXPECT_EQ(stored.count("head.weight"), 0U);
  EXPECT_EQ(stored.size(), 4U);

  const at::Tensor tied = at::zeros({2, 3});
  const at::Tensor transposed = at::zeros({3, 2});
  load_tensors(saved.section("model"), {{"embed.weight", tied},
                                        {"head.weight", tied},
                                        {"transposed", transposed},
                                        {"empty", at::empty({0})},
                                        {"other.empty", at::empty({0})}});
  EXPECT_TRUE(at::equal(tied, shared));
  EXPECT_TRUE(at::equal(transposed, shared.t()));
  expect_python(saved.path(), R"(
import torch
from safetensors.torch import load_model
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(2, 3)
        self.head = torch.nn.Linear(3, 2, bias=False)
        self.head.weight = self.embed.weight
        self.transposed = torch.nn.Parameter(torch.zeros(3, 2))
        self.empty = torch.nn.Parameter(torch.zeros(0))
        self.other = torch.nn.Module()
        self.other.empty = torch.nn.Parameter(torch.zeros(0))
model = Model()
load_model(model, "model.safetensors")
assert torch.equal(model.head.weight, torch.arange(6.).view(2, 3))
)");
}

TEST(SnapshotReading, OrderOfTheTargetsDoesNotMatter) {
  const TemporaryFolder folder;
  save_safetensors(folder.file("a"), {{"a", at::full({2}, 1.0F)}, {"b", at::full({2}, 2.0F)}});
  const at::Tensor a = at::zeros({2});
  const at::Tensor b = at::zeros({2});
  load_tensors(ModelFiles(folder.file("a")), {{"b", b}, {"a", a}});
  EXPECT_TRUE(at::equal(a, at::full({2}, 1.0F)));
  EXPECT_TRUE(at::equal(b, at::full({2}, 2.0F)));
}

TEST(Load, ConvertsValuesAmongFloatingTypesIntoAnyStrides) {
  const TemporaryFolder folder;
  const at::Tensor numbers = at::arange(-6, 6, at::kFloat).view({3, 4});
  save_safetensors(folder.file("a"), {{"half", numbers.to(at::kHalf)}, {"float", numbers}});
  const at::Tensor wide = at::zeros({4, 3}).t();
  const at::Tensor narrow = at::zeros({3, 4}, at::kBFloat16).requires_grad_();
  LoadOptions renamed;
  renamed.name_in_source = [](const std::string& name) { return name.substr(6); };
  load_tensors(ModelFiles(folder.file("a")), {{"model.half", wide}, {"model.float", narrow}},
               renamed);
  EXPECT_TRUE(at::equal(wide, numbers));
  EXPECT_TRUE(at::equal(narrow.detach().to(at::kFloat), numbers));
  EXPECT_TRUE(narrow.requires_grad());
}

TEST(SnapshotReading, PythonsShardsAndOursAreReadByTheirIndex) {
  const TemporaryFolder folder;
  expect_python(folder.path(), R"(
import json, torch
from safetensors.torch import save_file
save_file({"a": torch.full((3,), 1.)}, "model-00001-of-00002.safetensors")
save_file({"b": torch.full((2, 2), 2., dtype=torch.bfloat16)}, "model-00002-of-00002.safetensors")
json.dump({"metadata": {"total_size": 20}, "weight_map": {
    "a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"}},
    open("model.safetensors.index.json", "w"), indent=2)
)");
  const ModelFiles theirs(folder.path());
  EXPECT_THAT(theirs.names(), ElementsAre("a", "b"));
  EXPECT_TRUE(at::equal(theirs.read("a"), at::full({3}, 1.0F)));
  EXPECT_TRUE(at::equal(theirs.read("b"), at::full({2, 2}, 2, at::kBFloat16)));

  const TwoSnapshots two;
  const ModelFiles ours(two.newer);
  EXPECT_THAT(ours.names(), ElementsAre("embed.weight", "layer.bias", "layer.weight"));
  EXPECT_TRUE(at::equal(ours.read("layer.bias"), at::full({5, 7}, 2, at::kFloat)));
  expect_python(two.newer, R"(
import json, torch
from safetensors.torch import load_file
index = json.load(open("model.safetensors.index.json"))
read = {}
for file in set(index["weight_map"].values()):
    read.update(load_file(file))
assert set(read) == set(index["weight_map"]) == {"embed.weight", "layer.bias", "layer.weight"}
assert all(torch.equal(tensor, torch.full((5, 7), 2.)) for tensor in read.values())
manifest = json.load(open("manifest.json"))
assert manifest["step"] == 2 and manifest["world_size"] == 2
assert json.loads(manifest["texts"]["config"]) == {"step": 2}
)");
}

TEST(SnapshotReading, IndexThatLeavesItsFolderIsRejected) {
  const TemporaryFolder folder;
  const std::string inside = folder.file("inside");
  FileSystem::real()->make_folder(inside);
  save_safetensors(folder.file("secret"), {{"w", at::ones({2})}});
  save_safetensors(inside + "/real", {{"w", at::ones({2})}});
  ASSERT_EQ(::symlink("../secret", (inside + "/link").c_str()), 0);
  const auto refused = [&](const std::string& map) {
    const std::string path = inside + "/m.index.json";
    std::ofstream(path) << "{\"weight_map\":" << map << "}";
    return rejection_of([&] { ModelFiles{path}; });
  };
  EXPECT_THAT(refused(R"({"w":"../secret"})"), HasSubstr("no plain file name"));
  EXPECT_THAT(refused("{\"w\":\"" + folder.file("secret") + "\"}"),
              HasSubstr("no plain file name"));
  EXPECT_THAT(refused(R"({"w":""})"), HasSubstr("no plain file name"));
  EXPECT_THAT(refused(R"({"w":".."})"), HasSubstr("no plain file name"));
  EXPECT_THAT(refused(R"({"w":"real\u0000"})"), HasSubstr("no plain file name"));
  EXPECT_THAT(refused(R"({"w":"link"})"), HasSubstr("symbolic link"));
  EXPECT_THAT(refused(R"({"v":"real"})"), HasSubstr("does not have it"));
  EXPECT_THAT(refused(R"({"w":7})"), HasSubstr("must be a text"));
  EXPECT_THAT(refused(R"({"w":"real","w":"real"})"), HasSubstr("duplicate key"));
  EXPECT_THAT(refused("[]"), HasSubstr("must be an object"));
  EXPECT_THAT(rejection_of([&] { ModelFiles{inside}; }), HasSubstr("has neither"));
}

}  // namespace
}  // namespace lockstep::snapshot
