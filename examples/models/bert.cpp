#include "models/bert.h"

#include <lockstep/checkpointing/activation/checkpoint.h>
#include <lockstep/collectives/check.h>
#include <lockstep/runtime/load_weights.h>

#include <algorithm>

#include "models/named_group.h"
#include "models/names_in_file.h"

namespace {

namespace nn = torch::nn;

nn::Linear linear(int64_t in, int64_t out) {
  nn::Linear layer(in, out);
  nn::init::normal_(layer->weight, 0.0, 0.02);
  nn::init::zeros_(layer->bias);
  return layer;
}

nn::Embedding embedding(int64_t count, int64_t width) {
  nn::Embedding layer(count, width);
  nn::init::normal_(layer->weight, 0.0, 0.02);
  return layer;
}

nn::LayerNorm layer_norm(int64_t width) {
  return nn::LayerNorm(nn::LayerNormOptions({width}).eps(1e-12));
}

/// The function of the tensors; with `again` their values are computed once more in backward.
template <class Function, class... Tensors>
torch::Tensor computed(bool again, Function function, const Tensors&... tensors) {
  return again ? lockstep::checkpoint(function, tensors...) : function(tensors...);
}

void replace_end(std::string& name, const std::string& end, const std::string& by) {
  if (name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0) {
    name.replace(name.size() - end.size(), end.size(), by);
  }
}

}  // namespace

BertLayerImpl::BertLayerImpl(const BertSize& size, bool recomputes)
    : heads(std::max<int64_t>(1, size.width / 64)),
      dropout(size.dropout),
      recomputes_cheap_parts(recomputes) {
  nn::Module& attention = named_group(*this, "attention");
  nn::Module& self = named_group(attention, "self");
  query = self.register_module("query", linear(size.width, size.width));
  key = self.register_module("key", linear(size.width, size.width));
  value = self.register_module("value", linear(size.width, size.width));
  nn::Module& attended = named_group(attention, "output");
  projection = attended.register_module("dense", linear(size.width, size.width));
  attention_norm = attended.register_module("LayerNorm", layer_norm(size.width));
  up = named_group(*this, "intermediate")
           .register_module("dense", linear(size.width, 4 * size.width));
  nn::Module& output = named_group(*this, "output");
  down = output.register_module("dense", linear(4 * size.width, size.width));
  output_norm = output.register_module("LayerNorm", layer_norm(size.width));
}

torch::Tensor BertLayerImpl::forward(const torch::Tensor& hidden, const torch::Tensor& seen) {
  return feed_forward(attend(hidden, seen));
}

torch::Tensor BertLayerImpl::attend(const torch::Tensor& hidden, const torch::Tensor& seen) {
  const auto split = [&](const torch::Tensor& tensor) {
    return tensor.unflatten(2, {heads, -1}).transpose(1, 2);
  };
  const auto attention = [layer = projection, p = is_training() ? dropout : 0.0](
                             const auto& q, const auto& k, const auto& v,
                             const auto& mask) mutable {
    return layer(torch::scaled_dot_product_attention(q, k, v, mask, p).transpose(1, 2).flatten(2));
  };
  return added(hidden,
               computed(recomputes_cheap_parts, attention, split(query(hidden)), split(key(hidden)),
                        split(value(hidden)), seen),
               attention_norm);
}

torch::Tensor BertLayerImpl::feed_forward(const torch::Tensor& attended) {
  const auto activated = [layer = down](const torch::Tensor& x) mutable {
    return layer(torch::gelu(x));
  };
  return added(attended, computed(recomputes_cheap_parts, activated, up(attended)), output_norm);
}

torch::Tensor BertLayerImpl::added(const torch::Tensor& to, const torch::Tensor& change,
                                   const torch::nn::LayerNorm& norm) const {
  const auto sum = [norm = norm, p = dropout, training = is_training()](const auto& x,
                                                                        const auto& y) mutable {
    return norm(x + torch::dropout(y, p, training));
  };
  return computed(recomputes_cheap_parts, sum, to, change);
}

BertImpl::BertImpl(const BertSize& size, Recompute recompute) : dropout(size.dropout) {
  nn::Module& bert = named_group(*this, "bert");
  nn::Module& embeddings = named_group(bert, "embeddings");
  words = embeddings.register_module("word_embeddings", embedding(size.vocabulary, size.width));
  positions =
      embeddings.register_module("position_embeddings", embedding(size.positions, size.width));
  token_types = embeddings.register_module("token_type_embeddings", embedding(2, size.width));
  norm = embeddings.register_module("LayerNorm", layer_norm(size.width));
  nn::Module& numbered = named_group(named_group(bert, "encoder"), "layer");
  lockstep::Chain stages;
  for (int64_t number = 0; number < size.layers; ++number) {
    const std::string name = std::to_string(number);
    BertLayer layer =
        numbered.register_module(name, BertLayer(size, recompute == Recompute::cheap_parts));
    layers.push_back(layer);
    const auto parameters = [layer] { return layer->parameters(); };
    if (recompute == Recompute::layers) {
      stages.push_back({"layer " + name,
                        [layer, seen = seen](torch::Tensor x) mutable {
                          return lockstep::checkpoint(layer, x, *seen);
                        },
                        parameters});
      continue;
    }
    stages.push_back(
        {"attention " + name,
         [layer, seen = seen](torch::Tensor x) mutable { return layer->attend(x, *seen); },
         parameters});
    stages.push_back({"feed-forward " + name,
                      [layer](torch::Tensor x) mutable { return layer->feed_forward(x); },
                      parameters});
  }
  chain = lockstep::PlannedChain(std::move(stages));
  pooler = named_group(bert, "pooler").register_module("dense", linear(size.width, size.width));
  classifier = register_module("classifier", linear(size.width, size.classes));
}

torch::Tensor BertImpl::embedded(const torch::Tensor& pieces, const torch::Tensor& types) {
  *seen = pieces.ne(0).unsqueeze(1).unsqueeze(1);
  const torch::Tensor place = torch::arange(pieces.size(1), pieces.options());
  const torch::Tensor type = types.defined() ? types : torch::zeros_like(pieces);
  return torch::dropout(norm(words(pieces) + token_types(type) + positions(place)), dropout,
                        is_training());
}

torch::Tensor BertImpl::forward(const torch::Tensor& pieces, const torch::Tensor& types) {
  const torch::Tensor hidden = chain(embedded(pieces, types));
  const torch::Tensor pooled = torch::tanh(pooler(hidden.select(1, 0)));
  return classifier(torch::dropout(pooled, dropout, is_training()));
}

std::vector<torch::Tensor> BertImpl::hidden_states(const torch::Tensor& pieces,
                                                   const torch::Tensor& types) {
  std::vector<torch::Tensor> states = {embedded(pieces, types)};
  for (BertLayer& layer : layers) {
    states.push_back(layer(states.back(), *seen));
  }
  return states;
}

void load_bert(Bert& model, const std::string& path) {
  const std::set<std::string> names = names_in_file(model, path);
  lockstep::snapshot::LoadOptions options;
  options.match = lockstep::snapshot::Match::partial;
  options.name_in_source = [&](std::string name) {
    if (names.count(name) == 0) {  // files of the first release
      replace_end(name, "LayerNorm.weight", "LayerNorm.gamma");
      replace_end(name, "LayerNorm.bias", "LayerNorm.beta");
    }
    return names.count(name) > 0 || name.rfind("bert.", 0) != 0 ? name : name.substr(5);
  };
  const auto report = lockstep::load_weights(model, path, options);
  const bool all_but_head =
      std::all_of(report.missing.begin(), report.missing.end(),
                  [](const std::string& name) { return name.rfind("classifier.", 0) == 0; });
  LOCKSTEP_CHECK_CODE(all_but_head && report.misshapen.empty(), lockstep::ExitCode::snapshot, path,
                      ": is no BERT of these sizes: ", report.text());
}
