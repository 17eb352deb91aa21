// What an ExportedModule refuses: by name, with exit code data, and without a crash.
#include <caffe2/serialize/inline_container.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/inputs/exported_module.h>
#include <torch/library.h>
#include <torch/torch.h>

#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "error_of.h"
#include "runtime/temporary_folder.h"
#include "test_names.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

std::string archive(const std::string& name) {
  return std::string(LOCKSTEP_EXPORTED_MODELS) + "/" + name + ".pt2";
}

const std::string kArchive = archive("functional");

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string refusal_of(const std::string& path) {
  try {
    const ExportedModule model(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(path));
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

class ExportedRefusals : public ::testing::Test {
 protected:
  /// The archive with another text in one record.
  std::string edited(const std::string& record,
                     const std::function<std::string(const std::string&)>& edit) {
    caffe2::serialize::PyTorchStreamReader reader(kArchive);
    const std::string path = folder_.file("edited.pt2");
    caffe2::serialize::PyTorchStreamWriter writer(path);
    for (const std::string& name : reader.getAllRecords()) {
      if (name.rfind(".data/", 0) == 0 || name == "byteorder" || name == "version") {
        continue;  // the writer adds them
      }
      const auto [data, size] = reader.getRecord(name);
      std::string text(static_cast<const char*>(data.get()), size);
      if (name == record) {
        text = edit(text);
      }
      writer.writeRecord(name, text.data(), text.size());
    }
    writer.writeEndOfFile();
    return path;
  }

  std::string edited_json(const std::string& record, const std::function<void(Json&)>& edit) {
    return edited(record, [&](const std::string& text) {
      Json json = Json::parse(text);
      edit(json);
      return json.dump();
    });
  }

  std::string refusal_with(const std::string& record,
                           const std::function<std::string(const std::string&)>& edit) {
    return refusal_of(edited(record, edit));
  }

  std::string refusal_with_json(const std::string& record, const std::function<void(Json&)>& edit) {
    return refusal_of(edited_json(record, edit));
  }

  /// The refusal of the program with another first node.
  std::string refusal_of_node(const std::function<void(Json&)>& edit) {
    return refusal_with_json("models/model.json", [&](Json& json) {
      for (Json& node : json["graph_module"]["graph"]["nodes"]) {
        if (node["target"].get<std::string>().find("relu") != std::string::npos) {
          edit(node);
        }
      }
    });
  }

  std::string refusal_of_target(const std::string& target) {
    return refusal_of_node([&](Json& node) { node["target"] = target; });
  }

  testing::TemporaryFolder folder_;
};

TEST_F(ExportedRefusals, FilesThatAreNoExportedProgram) {
  EXPECT_THAT(refusal_of(folder_.file("missing.pt2")), HasSubstr("cannot open the file"));
  std::ofstream(folder_.file("text.pt2")) << "no archive";
  EXPECT_THAT(refusal_of(folder_.file("text.pt2")), HasSubstr("damaged"));
  std::ofstream(folder_.file("pickle.pt2")) << "\x80\x02" << std::string(60, '.');
  EXPECT_THAT(refusal_of(folder_.file("pickle.pt2")), HasSubstr("this is a file of pickle"));
  std::ofstream(folder_.file("empty.pt2")) << "";
  refusal_of(folder_.file("empty.pt2"));
  torch::save(at::ones({2}), folder_.file("tensor.pt"));
  EXPECT_THAT(refusal_of(folder_.file("tensor.pt")), HasSubstr("torch"));
}

TEST_F(ExportedRefusals, UnknownVersionsOfTheSchema) {
  EXPECT_THAT(refusal_with_json("models/model.json",
                                [](Json& json) { json["schema_version"]["major"] = 9; }),
              HasSubstr("version 9 of torch.export's schema, and this library reads version 8"));
}

TEST_F(ExportedRefusals, ProgramsThatAreNestedDeeply) {
  const auto nested = [](const std::string& text) {
    return R"({"deep":)" + std::string(300'000, '[') + std::string(300'000, ']') + "," +
           text.substr(1);
  };
  for (const char* record : {"models/model.json", "data/weights/model_weights_config.json"}) {
    EXPECT_THAT(refusal_with(record, nested), HasSubstr("nested deeper than 256"));
  }
  EXPECT_THAT(
      refusal_with_json("models/model.json",
                        [](Json& json) {
                          json["graph_module"]["module_call_graph"][0]["signature"]["out_spec"] =
                              std::string(100'000, '[');
                        }),
      HasSubstr("the structure of the outputs is damaged: nested deeper"));
}

TEST_F(ExportedRefusals, PickledTensors) {
  EXPECT_THAT(
      refusal_with_json("data/weights/model_weights_config.json",
                        [](Json& json) { json["config"]["a.weight"]["use_pickle"] = true; }),
      HasSubstr("'a.weight' is pickled"));
}

TEST_F(ExportedRefusals, OperatorsThatAreNotRun) {
  EXPECT_THAT(refusal_of_target("torch.ops.mylib.relu.default"),
              HasSubstr("(torch.ops.mylib.relu.default)"));
  EXPECT_THAT(refusal_of_target("torch.ops.mylib.relu.default"),
              HasSubstr("ExportedModuleOptions().operators({\"mylib\"}), in C and Fortran "
                        "\"operators=mylib\""));
  EXPECT_THAT(refusal_of_target("torch.ops.aten.no_such_operator.default"),
              HasSubstr("does not have the operator"));
  EXPECT_THAT(refusal_of_target("os.system"), HasSubstr("no operator of LibTorch"));
  EXPECT_THAT(refusal_of_target("torch.ops.aten.from_file.default"), HasSubstr("open files"));
}

TEST_F(ExportedRefusals, HigherOrderOperatorsByTheirNamesAndLines) {
  const std::string branches = refusal_of(archive("branches"));
  EXPECT_THAT(branches, HasSubstr("torch.ops.higher_order.cond"));
  EXPECT_THAT(branches, HasSubstr("export_models.py\", line "));
  EXPECT_THAT(refusal_of(archive("recomputes")), HasSubstr("Pass use_reentrant=False"));
}

TEST_F(ExportedRefusals, TheLayoutOfAnOlderTorch) {
  EXPECT_THAT(refusal_of(archive("old_layout")), HasSubstr("a torch before 2.9"));
}

TEST_F(ExportedRefusals, RegisteredOperatorsOfNamespacesThatTheProgramDoesNotName) {
  EXPECT_THAT(refusal_of(archive("registered")), HasSubstr("operators({\"lockstep_test\"})"));
  const auto options = ExportedModuleOptions().operators({"lockstep_test"});
  EXPECT_THAT(error_of([&] { ExportedModule(archive("registered"), options); }),
              HasSubstr("this process has not registered the operator"));
  auto library = std::make_unique<torch::Library>(torch::Library::FRAGMENT, "lockstep_test",
                                                  std::nullopt, __FILE__, __LINE__);
  library->def("scaled(Tensor x, float factor) -> Tensor",
               [](const at::Tensor& x, double factor) { return x * factor; });
  ExportedModule model(archive("registered"), options);
  const at::Tensor x = at::ones({6, 6}).requires_grad_(true);
  const auto parameters = model->named_parameters();
  const at::Tensor output = model->forward(x);
  EXPECT_TRUE(at::equal(output, at::linear(x * 2.0, parameters["b.weight"], parameters["b.bias"])));
  output.sum().backward();
  EXPECT_TRUE(x.grad().defined());
}

TEST_F(ExportedRefusals, InputsThatDoNotFitARelationOfTheProgram) {
  ExportedModule model(edited_json("models/model.json", [](Json& json) {
    json["guards_code"] = {"L['x'].size()[0] % 2 == 0", "L['x'].size()[0] != 8"};
  }));
  EXPECT_EQ(model->forward(at::ones({4, 6})).size(0), 4);
  EXPECT_THAT(error_of([&] {
                model->forward(at::ones({3, 6}));
              }),
              HasSubstr("the sizes of the inputs do not fit: x.size()[0] % 2 == 0"));
  EXPECT_THAT(error_of([&] { model->forward(at::ones({8, 6})); }), HasSubstr("x.size()[0] != 8"));
}

TEST_F(ExportedRefusals, RelationsThatAreNoArithmeticOnSizes) {
  for (const char* relation : {"", "L['x'].size()[0] ==", "L['y'].size()[0] == 2", "open('file')",
                               "L['x'].size()[0] < 2 < 3", "(L['x'].size()[0] == 2",
                               "L['x'].size()[0] == 2)", "99999999999999999999 == 1", "1 1"}) {
    EXPECT_THAT(refusal_with_json("models/model.json",
                                  [&](Json& json) { json["guards_code"] = {relation}; }),
                HasSubstr("the relation of sizes"))
        << relation;
  }
}

TEST_F(ExportedRefusals, ArgumentsThatDoNotFitTheOperator) {
  EXPECT_THAT(refusal_of_node([](Json& node) {
                node["inputs"][0]["arg"] = {{"as_string", "x"}};
              }),
              HasSubstr("the argument 'self' of type Tensor cannot be made from 'as_string'"));
  EXPECT_THAT(refusal_of_node([](Json& node) { node["inputs"][0]["name"] = "other"; }),
              HasSubstr("has no argument 'other'"));
  EXPECT_THAT(refusal_of_node([](Json& node) { node["inputs"] = Json::array(); }),
              HasSubstr("the argument 'self' is missing"));
  EXPECT_THAT(
      refusal_of_node([](Json& node) { node["inputs"][0]["arg"]["as_tensor"]["name"] = "later"; }),
      HasSubstr("the value 'later' is used before it is computed"));
  EXPECT_THAT(refusal_of_node([](Json& node) {
                node["inputs"][0]["arg"] = {{"as_none", true}};
              }),
              HasSubstr("is None"));
}

TEST_F(ExportedRefusals, ANormWithoutAnyStatistics) {
  const std::string refusal = refusal_with_json("models/model.json", [](Json& json) {
    for (Json& node : json["graph_module"]["graph"]["nodes"]) {
      if (node["target"].get<std::string>().find("batch_norm") == std::string::npos) {
        continue;
      }
      node["target"] = "torch.ops.aten.native_batch_norm.default";
      for (Json& input : node["inputs"]) {
        if (input["name"] == "running_mean" || input["name"] == "running_var") {
          input["arg"] = {{"as_none", true}};
        } else if (input["name"] == "training") {
          input["arg"] = {{"as_bool", false}};
        }
      }
    }
  });
  EXPECT_THAT(refusal, HasSubstr("native_batch_norm.default"));
  EXPECT_THAT(refusal, HasSubstr("without running statistics"));
  EXPECT_THAT(refusal, HasSubstr("training=False"));
}

TEST_F(ExportedRefusals, SizesBeyondTheStoredBytes) {
  const auto with_meta = [&](const char* field, const Json& value) {
    return refusal_with_json("data/weights/model_weights_config.json", [&](Json& json) {
      json["config"]["a.weight"]["tensor_meta"][field] = value;
    });
  };
  const int64_t huge = int64_t{1} << 62;
  const Json large = {{{"as_int", huge}}, {{"as_int", huge}}};
  EXPECT_THAT(with_meta("sizes", large), HasSubstr("'a.weight' reach beyond"));
  EXPECT_THAT(with_meta("strides", large), HasSubstr("'a.weight' reach beyond"));
  EXPECT_THAT(with_meta("storage_offset", {{"as_int", 1}}), HasSubstr("'a.weight' reach beyond"));
  EXPECT_THAT(with_meta("storage_offset", {{"as_int", -1}}), HasSubstr("'a.weight' reach beyond"));
  EXPECT_THAT(with_meta("dtype", 99), HasSubstr("unknown dtype 99"));
  EXPECT_THAT(with_meta("dtype", "7"), HasSubstr("not an integer"));
}

TEST_F(ExportedRefusals, JsonThatIsNoneOrDeep) {
  EXPECT_THAT(refusal_with("models/model.json", [](const std::string&) { return "{"; }),
              HasSubstr("is not JSON"));
  refusal_with("models/model.json", [](const std::string&) { return std::string(200'000, '['); });
  EXPECT_THAT(refusal_with("models/model.json", [](const std::string&) { return "[]"; }),
              HasSubstr("of another schema"));
  std::string spec = R"({"type": null, "context": null, "children_spec": []})";
  for (int depth = 0; depth < 100; ++depth) {
    spec = R"({"type": "builtins.list", "context": "null", "children_spec": [)" + spec + "]}";
  }
  EXPECT_THAT(
      refusal_with_json("models/model.json",
                        [&](Json& json) {
                          json["graph_module"]["module_call_graph"][0]["signature"]["out_spec"] =
                              "[1, " + spec + "]";
                        }),
      HasSubstr("nested deeper"));
}

/// Loads, and returns whether the archive was taken. Anything but an Error with exit code data
/// fails.
bool taken(const std::string& path, const at::Tensor& x, at::Tensor* output) {
  try {
    ExportedModule model(path);
    *output = model->forward(x);
    return true;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data) << error.what();
    return false;
  }
}

TEST_F(ExportedRefusals, TruncatedArchives) {
  const std::string bytes = bytes_of(kArchive);
  at::Tensor output;
  for (size_t part = 0; part < 60; ++part) {
    const std::string path = folder_.file("cut.pt2");
    std::ofstream(path, std::ios::binary) << bytes.substr(0, bytes.size() * part / 60);
    EXPECT_FALSE(taken(path, at::ones({4, 6}), &output)) << part;
  }
}

/// A flipped bit is refused, or lies where no byte is used (padding, dates).
TEST_F(ExportedRefusals, FlippedBits) {
  const std::string bytes = bytes_of(kArchive);
  const at::Tensor x = at::arange(24, at::kFloat).reshape({4, 6});
  at::Tensor expected;
  ASSERT_TRUE(taken(kArchive, x, &expected));
  int refused = 0;
  constexpr int flips = 400;
  for (int flip = 0; flip < flips; ++flip) {
    std::string changed = bytes;
    const size_t bit = static_cast<size_t>(flip) * 7919 * 104729 % (bytes.size() * 8);
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    const std::string path = folder_.file("flipped.pt2");
    std::ofstream(path, std::ios::binary) << changed;
    at::Tensor output;
    if (taken(path, x, &output)) {
      EXPECT_TRUE(at::equal(output, expected)) << "bit " << bit;
    } else {
      ++refused;
    }
  }
  EXPECT_GT(refused, flips / 2);
}

}  // namespace
}  // namespace lockstep
