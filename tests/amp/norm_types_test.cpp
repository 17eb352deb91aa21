#include <gtest/gtest.h>
#include <lockstep/amp/layers/norm_types.h>

namespace lockstep {

using namespace detail;

namespace {

TEST(NormTypes, KnowsQualifiedAndDerivedNames) {
  for (const char* name :
       {"BatchNorm2d",
        "torch::nn::BatchNorm1dImpl",
        "torch::nn::LayerNormImpl",
        "SyncBatchNorm",
        "__torch__.torch.nn.modules.instancenorm.___torch_mangle_3.InstanceNorm3d",
        "GroupNorm",
        "RMSNorm",
        "T5LayerNorm",
        "FusedRMSNormImpl",
        "(anonymous namespace)::LlamaRMSNorm",
        "RmsNorm",
        "gpt::RmsNormImpl",
        "Layernorm",
        "Batchnorm2d",
        "GROUPNORM",
        "ScaleNorm",
        "Norm",
        "NormImpl",
        "tutorial::Norm",
        "FrozenBatchNorm2d",
        "LayerNorm2d"}) {
    EXPECT_TRUE(is_norm_type(name)) << name;
  }
}

TEST(NormTypes, OtherNamesAreNoNorms) {
  for (const char* name :
       {"Linear", "torch::nn::LSTMImpl", "LayerNormLSTM", "Normalizer", "", "batchnorm.Linear",
        "LayerNorm::Helper", "2d", "LayerNormMLP", "PreNorm", "WeightNorm", "SpectralNorm",
        "BatchNormAct2d", "Normal", "ResNorm2dBlock", "Enorm"}) {
    EXPECT_FALSE(is_norm_type(name)) << name;
  }
}

}  // namespace
}  // namespace lockstep
