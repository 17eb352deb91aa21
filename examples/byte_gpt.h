#pragma once

#include <torch/nn.h>

#include <algorithm>
#include <string>
#include <vector>

/// The sizes of a ByteGpt.
struct GptSize {
  int64_t layers = 4;
  int64_t width = 128;
  int64_t heads = 4;
  int64_t context = 128;
};

/// A transformer block: causal attention and a two-layer network, each on a normalised input.
struct GptBlockImpl : torch::nn::Module {
  explicit GptBlockImpl(const GptSize& size)
      : heads(size.heads),
        attention_norm(register_module("attention_norm", norm(size.width))),
        query_key_value(
            register_module("query_key_value", torch::nn::Linear(size.width, 3 * size.width))),
        projection(register_module("projection", torch::nn::Linear(size.width, size.width))),
        network_norm(register_module("network_norm", norm(size.width))),
        network(register_module(
            "network",
            torch::nn::Sequential(torch::nn::Linear(size.width, 4 * size.width), torch::nn::GELU(),
                                  torch::nn::Linear(4 * size.width, size.width)))) {}

  torch::Tensor forward(const torch::Tensor& input) {
    const torch::Tensor hidden = input + attend(attention_norm(input));
    return hidden + network->forward(network_norm(hidden));
  }

  torch::Tensor attend(const torch::Tensor& input) {
    const auto split = [&](const torch::Tensor& tensor) {
      return tensor.unflatten(2, {heads, -1}).transpose(1, 2);
    };
    const auto parts = query_key_value(input).chunk(3, 2);
    const torch::Tensor mixed = torch::scaled_dot_product_attention(
        split(parts[0]), split(parts[1]), split(parts[2]), /*attn_mask=*/{}, /*dropout_p=*/0.0,
        /*is_causal=*/true);
    return projection(mixed.transpose(1, 2).flatten(2));
  }

  static torch::nn::LayerNorm norm(int64_t width) {
    return torch::nn::LayerNorm(torch::nn::LayerNormOptions({width}));
  }

  int64_t heads;
  torch::nn::LayerNorm attention_norm;
  torch::nn::Linear query_key_value, projection;
  torch::nn::LayerNorm network_norm;
  torch::nn::Sequential network;
};
TORCH_MODULE(GptBlock);

/// Predicts the next of 256 bytes at each place: [batch, length] int64 -> [batch, length, 256].
struct ByteGptImpl : torch::nn::Module {
  explicit ByteGptImpl(const GptSize& size)
      : bytes(register_module("bytes", torch::nn::Embedding(256, size.width))),
        places(register_module("places", torch::nn::Embedding(size.context, size.width))),
        blocks(register_module("blocks", torch::nn::Sequential())),
        last_norm(register_module("last_norm", GptBlockImpl::norm(size.width))),
        head(register_module("head", torch::nn::Linear(size.width, 256))) {
    for (int64_t layer = 0; layer < size.layers; ++layer) {
      blocks->push_back(GptBlock(size));
    }
    torch::NoGradGuard no_grad;
    bytes->weight.mul_(0.1);
    places->weight.mul_(0.1);
  }

  torch::Tensor forward(const torch::Tensor& text) {
    const torch::Tensor place = torch::arange(text.size(1), text.device());
    return head(last_norm(blocks->forward(bytes(text) + places(place))));
  }

  torch::nn::Embedding bytes, places;
  torch::nn::Sequential blocks;
  torch::nn::LayerNorm last_norm;
  torch::nn::Linear head;
};
TORCH_MODULE(ByteGpt);

/// `text` and the `count` bytes that the model finds likeliest after it.
inline std::string write_on(ByteGpt& model, std::string text, int64_t count, int64_t context) {
  const torch::NoGradGuard no_grad;
  for (int64_t i = 0; i < count; ++i) {
    const std::string seen =
        text.substr(text.size() - std::min(text.size(), static_cast<size_t>(context)));
    const torch::Tensor input =
        torch::tensor(std::vector<uint8_t>(seen.begin(), seen.end()), torch::kLong)
            .to(model->head->weight.device());
    const torch::Tensor next = model->forward(input.unsqueeze(0))[0][-1];
    text += static_cast<char>(next.argmax().item<int64_t>());
  }
  return text;
}
