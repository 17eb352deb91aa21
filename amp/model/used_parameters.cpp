#include <lockstep/amp/fused_layers.h>
#include <lockstep/amp/model/used_parameters.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/instancenorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>

namespace lockstep::detail {

namespace {

using Members = std::vector<std::pair<const char*, const at::Tensor*>>;

template <typename... Types>
void add_weights(const torch::nn::Module& module, Members& members) {
  const auto add = [&](const auto* typed) {
    if (typed != nullptr) {
      members.emplace_back("weight", &typed->weight);
    }
  };
  (add(dynamic_cast<const Types*>(&module)), ...);
}

template <typename... Types>
void add_biases(const torch::nn::Module& module, Members& members) {
  const auto add = [&](const auto* typed) {
    if (typed != nullptr) {
      members.emplace_back("bias", &typed->bias);
    }
  };
  (add(dynamic_cast<const Types*>(&module)), ...);
}

template <typename... Types>
void add_weights_and_biases(const torch::nn::Module& module, Members& members) {
  add_weights<Types...>(module, members);
  add_biases<Types...>(module, members);
}

template <typename... Types>
void add_cells(const torch::nn::Module& module, Members& members) {
  const auto add = [&](const auto* typed) {
    if (typed != nullptr) {
      members.emplace_back("weight_ih", &typed->weight_ih);
      members.emplace_back("weight_hh", &typed->weight_hh);
      members.emplace_back("bias_ih", &typed->bias_ih);
      members.emplace_back("bias_hh", &typed->bias_hh);
    }
  };
  (add(dynamic_cast<const Types*>(&module)), ...);
}

void add_attention(const torch::nn::Module& module, Members& members) {
  const auto* typed = dynamic_cast<const torch::nn::MultiheadAttentionImpl*>(&module);
  if (typed == nullptr) {
    return;
  }
  members.emplace_back("in_proj_weight", &typed->in_proj_weight);
  members.emplace_back("in_proj_bias", &typed->in_proj_bias);
  members.emplace_back("q_proj_weight", &typed->q_proj_weight);
  members.emplace_back("k_proj_weight", &typed->k_proj_weight);
  members.emplace_back("v_proj_weight", &typed->v_proj_weight);
  members.emplace_back("bias_k", &typed->bias_k);
  members.emplace_back("bias_v", &typed->bias_v);
}

}  // namespace

UsedParameters::UsedParameters(const torch::nn::Module& module) {
  using namespace torch::nn;  // NOLINT(google-build-using-namespace): the names of its layers
  add_weights<EmbeddingImpl, EmbeddingBagImpl, PReLUImpl, FusedRMSNormImpl>(module, members_);
  add_weights_and_biases<LinearImpl, BilinearImpl, Conv1dImpl, Conv2dImpl, Conv3dImpl,
                         ConvTranspose1dImpl, ConvTranspose2dImpl, ConvTranspose3dImpl,
                         BatchNorm1dImpl, BatchNorm2dImpl, BatchNorm3dImpl, InstanceNorm1dImpl,
                         InstanceNorm2dImpl, InstanceNorm3dImpl, LayerNormImpl, GroupNormImpl,
                         FusedLayerNormImpl>(module, members_);
  add_cells<RNNCellImpl, LSTMCellImpl, GRUCellImpl>(module, members_);
  add_attention(module, members_);
}

const at::Tensor& UsedParameters::find(const std::string& name, const at::Tensor& registered,
                                       const std::unordered_set<const void*>& parameters) const {
  for (const auto& [member_name, member] : members_) {
    if (name != member_name || !member->defined() || !member->is_leaf()) {
      continue;
    }
    if (member->requires_grad() || parameters.count(member->unsafeGetTensorImpl()) > 0) {
      return *member;
    }
  }
  return registered;
}

}  // namespace lockstep::detail
