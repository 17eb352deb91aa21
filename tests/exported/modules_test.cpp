// An ExportedModule as a module: names, modes, sizes, containers, devices and dtypes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "python_models.h"
#include "test_names.h"

namespace lockstep {
namespace {

template <typename Call>
std::string what_of(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

TEST(ExportedModules, ContainersComeBackAsPythonReturnsThem) {
  const PythonModel python("several");
  ExportedModule model = python.load();
  EXPECT_EQ(model->input_names().size(), 3);
  EXPECT_THAT(model->output_names(), ElementsAre("logits", "states.0", "states.1.0"));
  const auto result = model->run(python.values()).toGenericDict();
  EXPECT_EQ(result.at("rows").toInt(), 6);
  const auto states = result.at("states").toList();
  const at::Tensor hidden = states.get(0).toTensor();
  const auto other = states.get(1).toTuple()->elements();
  EXPECT_THAT(hidden.sizes(), ElementsAre(6, 6));
  EXPECT_THAT(other.at(0).toTensor().sizes(), ElementsAre(6, 2));
  EXPECT_TRUE(other.at(1).isNone());
  EXPECT_TRUE(at::equal(model->outputs(python.inputs).at(1), hidden));
  EXPECT_THAT(
      what_of([&] { model->forward(python.inputs[0], python.inputs[1], python.inputs[2]); }),
      HasSubstr("Call run() or outputs()"));
}

TEST(ExportedModules, TiedFrozenAndUnusedParametersAreThoseOfPython) {
  ExportedModule gpt(PythonModel::archive("gpt"));
  EXPECT_TRUE(
      gpt->named_parameters()["head.weight"].is_same(gpt->named_parameters()["words.weight"]));
  EXPECT_TRUE(gpt->named_buffers().is_empty());  // 'angles' is not persistent
  ExportedModule masked(PythonModel::archive("masked"));
  EXPECT_FALSE(masked->named_parameters()["scale"].requires_grad());
  EXPECT_TRUE(masked->named_parameters()["unused"].requires_grad());
}

TEST(ExportedModules, EvalSwitchesDropoutAndStatisticsOff) {
  const PythonModel python("depthwise");
  ExportedModule model = python.load();
  model->eval();
  const at::Tensor output = model->forward(python.inputs[0]);
  EXPECT_TRUE(at::equal(model->forward(python.inputs[0]), output));
  EXPECT_EQ(model->named_buffers()["expand.1.num_batches_tracked"].item<int64_t>(), 0);
  model->train();
  EXPECT_FALSE(at::equal(model->forward(python.inputs[0]), model->forward(python.inputs[0])));
  EXPECT_EQ(model->named_buffers()["expand.1.num_batches_tracked"].item<int64_t>(), 2);
}

TEST(ExportedModules, FrozenStatisticsAreUsedInTrainingAndNeverMoved) {
  for (const char* name : {"norms", "decomposed"}) {
    SCOPED_TRACE(name);
    const PythonModel python(name);
    ExportedModule model = python.load();
    const auto buffers = model->named_buffers();
    const at::Tensor mean = buffers["frozen.running_mean"];
    const at::Tensor before = mean.clone();
    const at::Tensor output = model->forward(python.inputs[0]);
    EXPECT_TRUE(at::equal(mean, before));
    EXPECT_EQ(buffers["frozen.num_batches_tracked"].item<int64_t>(), 0);
    EXPECT_EQ(buffers["shared.num_batches_tracked"].item<int64_t>(), 2);
    EXPECT_TRUE(at::equal(model->forward(python.inputs[0]), output));
    mean.add_(0.5);
    EXPECT_FALSE(at::allclose(model->forward(python.inputs[0]), output));
  }
}

TEST(ExportedModules, ANormWithoutRunningStatisticsUsesTheBatchAfterEvalToo) {
  for (const char* name : {"norms", "decomposed"}) {
    SCOPED_TRACE(name);
    const PythonModel python(name);
    ExportedModule model = python.load();
    EXPECT_FALSE(model->named_buffers().contains("batch.running_mean"));
    model->eval();
    const at::Tensor whole = model->forward(python.inputs[0]);
    EXPECT_TRUE(at::equal(model->forward(python.inputs[0]), whole));
    const at::Tensor part = model->forward(python.inputs[0].slice(0, 0, 3));
    EXPECT_FALSE(at::allclose(part, whole.slice(0, 0, 3)));
  }
}

/// Where Python's forward() may have decided by `if self.training`.
TEST(ExportedModules, EvalOfOneProgramRefusesWhatItCannotKnow) {
  const std::pair<const char*, const char*> cases[] = {
      {"draws", "draws random numbers"},
      {"draws_decomposed", "draws random numbers"},
      {"makes_statistics", "is a norm by statistics that are no buffers"},
      {"writes", "writes to the buffer 'mean'"},
      {"writes_decomposed", "writes to the buffer 'mean'"},
      {"writes_to_view", "writes to the buffer 'mean'"}};
  for (const auto& [name, what] : cases) {
    SCOPED_TRACE(name);
    ExportedModule model(PythonModel::archive(name));
    const at::Tensor x = at::ones({6, 6});
    EXPECT_THAT(model->forward(x).sizes(), ElementsAre(6, 3));
    model->eval();
    const std::string error = what_of([&] { model->forward(x); });
    EXPECT_THAT(error, HasSubstr(what));
    EXPECT_THAT(error, HasSubstr("node '"));
    EXPECT_THAT(error, HasSubstr("export_models.py\", line "));
    EXPECT_THAT(error, HasSubstr("Export a second program after model.eval()"));
  }
}

TEST(ExportedModules, AProgramExportedAfterEvalRunsOnlyAfterEval) {
  ExportedModule model(PythonModel::archive("evaluated"));
  const at::Tensor x = at::ones({6, 6});
  EXPECT_THAT(what_of([&] { model->forward(x); }), HasSubstr("after model.eval()"));
  model->eval();
  EXPECT_THAT(model->forward(x).sizes(), ElementsAre(6, 3));
}

TEST(ExportedModules, DynamicSizesAreTakenAndOthersRefusedByName) {
  ExportedModule gpt(PythonModel::archive("gpt"));
  EXPECT_THAT(gpt->forward(at::ones({3, 5}, at::kLong)).sizes(), ElementsAre(3, 5, 50));
  EXPECT_THAT(what_of([&] {
                gpt->forward(at::ones({3, 65}, at::kLong));
              }),
              HasSubstr("dimension 1 of the input 'tokens' has size 65, and was exported for sizes "
                        "from 0 to 64"));
  EXPECT_THAT(what_of([&] { gpt->forward(at::ones({3, 5})); }), HasSubstr("dtype Float"));
  EXPECT_THAT(what_of([&] { gpt->forward(at::ones({3}, at::kLong)); }), HasSubstr("1 dimensions"));
  EXPECT_THAT(what_of([&] {
                gpt->forward(at::ones({3, 5}), at::ones({1}));
              }),
              HasSubstr("takes 1 inputs (tokens), not 2"));
  ExportedModule bert(PythonModel::archive("bert"));
  const at::Tensor tokens = at::ones({3, 8}, at::kLong);
  EXPECT_THAT(bert->forward(tokens, at::zeros({3, 8}, at::kBool)).sizes(), ElementsAre(3, 10));
  EXPECT_THAT(what_of([&] {
                bert->forward(tokens, at::zeros({2, 8}, at::kBool));
              }),
              HasSubstr("they were exported as one dynamic dimension"));
  EXPECT_THAT(what_of([&] { bert->forward(tokens.slice(1, 0, 7), tokens); }),
              HasSubstr("fixed size 8. To run other sizes, export with dynamic_shapes"));
  ExportedModule masked(PythonModel::archive("masked"));
  EXPECT_THAT(masked->forward(at::ones({2, 4, 8})).sizes(), ElementsAre(2, 5));
  EXPECT_THAT(what_of([&] {
                masked->forward(at::ones({2, 5, 8}));
              }),
              HasSubstr("the sizes of the inputs do not fit: "));
}

TEST(ExportedModules, ErrorsOfOperatorsNameTheNodeAndPythonsLine) {
  ExportedModule gpt(PythonModel::archive("gpt"));
  const std::string unknown = what_of([&] { gpt->forward(at::full({3, 5}, 1000)); });
  EXPECT_THAT(unknown, HasSubstr("ExportedModule: node '"));
  EXPECT_THAT(unknown, HasSubstr("export_models.py"));
}

TEST(ExportedModules, RelationsBetweenSizesAreCheckedInEachRun) {
  ExportedModule model(PythonModel::archive("related"));
  EXPECT_THAT(model->outputs({at::ones({4, 6}), at::ones({2, 3})})[0].sizes(), ElementsAre(2, 3));
  for (const int64_t rows : {1, 3, 4, 8}) {
    EXPECT_THAT(what_of([&] {
                  model->outputs({at::ones({4, 6}), at::ones({rows, 3})});
                }),
                HasSubstr("dimension 0 of the input 'pair_y' has size"))
        << rows;
  }
}

TEST(ExportedModules, ConstantsAndNewTensorsFollowACast) {
  for (const char* name : {"masked", "lstm", "gpt"}) {
    SCOPED_TRACE(name);
    const PythonModel python(name);
    ExportedModule model = python.load();
    model->eval();
    const at::Tensor expected = model->outputs(python.inputs).at(0);
    std::vector<at::Tensor> inputs = python.inputs;
    if (inputs[0].is_floating_point()) {
      inputs[0] = inputs[0].to(at::kDouble);
    }
    model->to(at::kDouble);
    const at::Tensor wide = model->outputs(inputs).at(0);
    EXPECT_EQ(wide.scalar_type(), at::kDouble);
    EXPECT_LT((wide - expected).abs().max().item<double>(), 1e-4);
  }
}

TEST(ExportedModules, ACastLeavesIntegersAsPythonDoes) {
  ExportedModule model(PythonModel::archive("resnet18"));
  model->to(at::kCPU, at::kBFloat16);
  for (const auto& buffer : model->named_buffers()) {
    const bool counts = buffer.key().find("num_batches_tracked") != std::string::npos;
    EXPECT_EQ(buffer.value().scalar_type(), counts ? at::kLong : at::kBFloat16) << buffer.key();
  }
}

TEST(ExportedModules, ItIsALayerOfSequentialAndOfOtherModules) {
  const PythonModel python("mlp");
  ExportedModule model = python.load();
  torch::nn::Sequential chain(model, torch::nn::Linear(1, 2));
  EXPECT_THAT(chain->forward(python.inputs[0]).sizes(), ElementsAre(6, 2));
  EXPECT_TRUE(chain->named_parameters().contains("0.2.weight"));
}

}  // namespace
}  // namespace lockstep
