#pragma once

#include <torch/nn.h>

#include <string>
#include <vector>

/// The sizes of a Gpt2. The defaults are those of the published model with 124 million parameters.
struct Gpt2Size {
  int64_t vocabulary = 50257;
  int64_t layers = 12;
  int64_t width = 768;
  int64_t heads = 12;
  int64_t context = 1024;  // tokens
  double dropout = 0.1;
};

/// Causal attention and a network of two layers, each on a normalised input.
struct Gpt2BlockImpl : torch::nn::Module {
  explicit Gpt2BlockImpl(const Gpt2Size& size);
  torch::Tensor forward(const torch::Tensor& hidden);

  int64_t heads;
  double dropout;
  torch::nn::LayerNorm ln_1{nullptr}, ln_2{nullptr};
  torch::nn::Linear c_attn{nullptr}, attn_c_proj{nullptr}, c_fc{nullptr}, mlp_c_proj{nullptr};
};
TORCH_MODULE(Gpt2Block);

/// Predicts the next token at each place. Names of the weights, and what is computed, are those of
/// Hugging Face's GPT2Model; the head has the weights of the embedding. Four matrices of each block
/// have rows and columns exchanged there (Conv1D): see load_gpt2().
struct Gpt2Impl : torch::nn::Module {
  explicit Gpt2Impl(const Gpt2Size& size);
  /// tokens: int64 [batch, length], length <= context. Returns scores, [batch, length, vocabulary].
  torch::Tensor forward(const torch::Tensor& tokens);

  Gpt2Size size;
  torch::nn::Embedding wte{nullptr}, wpe{nullptr};
  torch::nn::Sequential h;
  torch::nn::LayerNorm ln_f{nullptr};
};
TORCH_MODULE(Gpt2);

/// Loads weights of Hugging Face from a safetensors file, or a folder with model.safetensors, such
/// as the published gpt2. Throws lockstep::Error that names what is missing or has other sizes.
/// Call it on every rank, before a Trainer is made.
void load_gpt2(Gpt2& model, const std::string& path);

/// How sample() chooses among the next tokens.
struct SampleOptions {
  double temperature = 1.0;  // 0: always the likeliest
  int64_t top_k = 40;        // only among so many likeliest
};

/// `tokens` and `count` more. Draws from LibTorch's default generator. Sets the model to eval mode.
std::vector<int64_t> sample(Gpt2& model, std::vector<int64_t> tokens, int64_t count,
                            const SampleOptions& options = {});
