#include "models/gpt2.h"

#include <lockstep/collectives/check.h>
#include <lockstep/runtime/load_weights.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "models/named_group.h"
#include "models/names_in_file.h"

namespace {

namespace nn = torch::nn;

nn::Linear linear(int64_t in, int64_t out, double deviation = 0.02) {
  nn::Linear layer(in, out);
  nn::init::normal_(layer->weight, 0.0, deviation);
  nn::init::zeros_(layer->bias);
  return layer;
}

nn::Embedding embedding(int64_t count, int64_t width) {
  nn::Embedding layer(count, width);
  nn::init::normal_(layer->weight, 0.0, 0.02);
  return layer;
}

nn::LayerNorm layer_norm(int64_t width) {
  return nn::LayerNorm(nn::LayerNormOptions({width}));
}

bool ends_with(const std::string& name, const std::string& end) {
  return name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

Gpt2BlockImpl::Gpt2BlockImpl(const Gpt2Size& size) : heads(size.heads), dropout(size.dropout) {
  const double last = 0.02 / std::sqrt(2.0 * static_cast<double>(size.layers));
  ln_1 = register_module("ln_1", layer_norm(size.width));
  nn::Module& attention = named_group(*this, "attn");
  c_attn = attention.register_module("c_attn", linear(size.width, 3 * size.width));
  attn_c_proj = attention.register_module("c_proj", linear(size.width, size.width, last));
  ln_2 = register_module("ln_2", layer_norm(size.width));
  nn::Module& network = named_group(*this, "mlp");
  c_fc = network.register_module("c_fc", linear(size.width, 4 * size.width));
  mlp_c_proj = network.register_module("c_proj", linear(4 * size.width, size.width, last));
}

torch::Tensor Gpt2BlockImpl::forward(const torch::Tensor& hidden) {
  const auto split = [&](const torch::Tensor& tensor) {
    return tensor.unflatten(2, {heads, -1}).transpose(1, 2);
  };
  const auto parts = c_attn(ln_1(hidden)).chunk(3, 2);
  const torch::Tensor mixed = torch::scaled_dot_product_attention(
      split(parts[0]), split(parts[1]), split(parts[2]), /*attn_mask=*/{},
      is_training() ? dropout : 0.0, /*is_causal=*/true);
  const torch::Tensor attended =
      hidden +
      torch::dropout(attn_c_proj(mixed.transpose(1, 2).flatten(2)), dropout, is_training());
  const torch::Tensor computed = mlp_c_proj(torch::gelu(c_fc(ln_2(attended)), "tanh"));
  return attended + torch::dropout(computed, dropout, is_training());
}

Gpt2Impl::Gpt2Impl(const Gpt2Size& size) : size(size) {
  wte = register_module("wte", embedding(size.vocabulary, size.width));
  wpe = register_module("wpe", embedding(size.context, size.width));
  for (int64_t layer = 0; layer < size.layers; ++layer) {
    h->push_back(Gpt2Block(size));
  }
  register_module("h", h);
  ln_f = register_module("ln_f", layer_norm(size.width));
}

torch::Tensor Gpt2Impl::forward(const torch::Tensor& tokens) {
  LOCKSTEP_CHECK(tokens.size(1) <= size.context, "Gpt2: ", tokens.size(1),
                 " tokens, expected at most ", size.context);
  const torch::Tensor place = torch::arange(tokens.size(1), tokens.options());
  const torch::Tensor hidden =
      h->forward(torch::dropout(wte(tokens) + wpe(place), size.dropout, is_training()));
  return torch::linear(ln_f(hidden), wte->weight);
}

void load_gpt2(Gpt2& model, const std::string& path) {
  const std::set<std::string> names = names_in_file(model, path);
  lockstep::snapshot::LoadOptions options;
  options.match = lockstep::snapshot::Match::partial;
  options.transposed = [](const std::string& name) { return name.find(".c_") != name.npos; };
  options.name_in_source = [&](const std::string& name) {
    return names.count("transformer." + name) > 0 ? "transformer." + name : name;
  };
  const auto report = lockstep::load_weights(model, path, options);
  // What a file may have besides: the masks of attention, and the head, which is the embedding.
  const bool only_known =
      std::all_of(report.unexpected.begin(), report.unexpected.end(), [](const std::string& name) {
        return ends_with(name, ".attn.bias") || ends_with(name, ".attn.masked_bias") ||
               name == "lm_head.weight";
      });
  LOCKSTEP_CHECK_CODE(only_known && report.missing.empty() && report.misshapen.empty(),
                      lockstep::ExitCode::snapshot, path,
                      ": is no GPT-2 of these sizes: ", report.text());
}

std::vector<int64_t> sample(Gpt2& model, std::vector<int64_t> tokens, int64_t count,
                            const SampleOptions& options) {
  LOCKSTEP_CHECK(!tokens.empty(), "sample: no tokens; begin with the token of the end of a text");
  const torch::NoGradGuard no_grad;
  model->eval();
  const int64_t top_k = std::min(options.top_k, model->size.vocabulary);
  for (int64_t i = 0; i < count; ++i) {
    const auto seen =
        static_cast<int64_t>(std::min(tokens.size(), static_cast<size_t>(model->size.context)));
    const torch::Tensor input = torch::tensor(tokens, torch::kLong)
                                    .narrow(0, static_cast<int64_t>(tokens.size()) - seen, seen)
                                    .to(model->wte->weight.device());
    const auto [scores, numbers] =
        torch::topk(model->forward(input.unsqueeze(0))[0][-1].to(torch::kFloat), top_k, /*dim=*/-1);
    const torch::Tensor chosen =
        options.temperature == 0.0
            ? torch::zeros({1}, numbers.options())
            : torch::multinomial(torch::softmax(scores / options.temperature, 0), 1);
    tokens.push_back(numbers.index_select(0, chosen).item<int64_t>());
  }
  return tokens;
}
