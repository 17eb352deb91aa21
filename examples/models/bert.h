#pragma once

#include <lockstep/checkpointing/activation/planned_chain.h>
#include <torch/nn.h>

#include <memory>
#include <string>
#include <vector>

/// The sizes of a Bert. The defaults are those of bert-base-uncased, with three classes.
struct BertSize {
  int64_t vocabulary = 30522;
  int64_t layers = 12;
  int64_t width = 768;  // 64 for each head, or one head
  int64_t positions = 512;
  int64_t classes = 3;
  double dropout = 0.1;
};

/// What a Bert computes again in backward instead of keeping it from forward.
enum class Recompute {
  nothing,
  /// The scores of attention, the GELU, dropout and norms: large results that are quick to compute.
  /// The layers' products with weights run once.
  cheap_parts,
  /// All of each layer but its input.
  layers
};

/// Attention and a network of two layers, each added to its input and then normalised.
struct BertLayerImpl : torch::nn::Module {
  /// `recomputes`: Recompute::cheap_parts.
  explicit BertLayerImpl(const BertSize& size, bool recomputes = false);
  /// hidden: [batch, length, width]. seen: bool, [batch, 1, 1, length].
  torch::Tensor forward(const torch::Tensor& hidden, const torch::Tensor& seen);
  /// The two halves of forward().
  torch::Tensor attend(const torch::Tensor& hidden, const torch::Tensor& seen);
  torch::Tensor feed_forward(const torch::Tensor& attended);
  /// norm(to + dropout(change))
  torch::Tensor added(const torch::Tensor& to, const torch::Tensor& change,
                      const torch::nn::LayerNorm& norm) const;

  int64_t heads;
  double dropout;
  bool recomputes_cheap_parts;
  torch::nn::Linear query{nullptr}, key{nullptr}, value{nullptr}, projection{nullptr}, up{nullptr},
      down{nullptr};
  torch::nn::LayerNorm attention_norm{nullptr}, output_norm{nullptr};
};
TORCH_MODULE(BertLayer);

/// An encoder of text with a classifier on its first piece. Names and shapes of the weights, and
/// what is computed, are those of Hugging Face's BertForSequenceClassification, so a published
/// checkpoint can be loaded: see load_bert().
struct BertImpl : torch::nn::Module {
  explicit BertImpl(const BertSize& size, Recompute recompute = Recompute::nothing);

  /// pieces: int64 [batch, length], 0 behind the end of a text. types: int64 of the same sizes, 0
  /// in the first and 1 in the second of two texts; undefined: all 0. Returns scores, [batch,
  /// classes].
  torch::Tensor forward(const torch::Tensor& pieces, const torch::Tensor& types = {});
  /// The output of the embeddings and of each layer: layers + 1 tensors, [batch, length, width].
  std::vector<torch::Tensor> hidden_states(const torch::Tensor& pieces,
                                           const torch::Tensor& types = {});

  torch::Tensor embedded(const torch::Tensor& pieces, const torch::Tensor& types);

  double dropout;
  torch::nn::Embedding words{nullptr}, positions{nullptr}, token_types{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  std::vector<BertLayer> layers;
  torch::nn::Linear pooler{nullptr}, classifier{nullptr};
  lockstep::PlannedChain chain;  // the halves of the layers: for TrainerOptions::activation_chain
  std::shared_ptr<torch::Tensor> seen = std::make_shared<torch::Tensor>();  // of this batch
};
TORCH_MODULE(Bert);

/// Loads weights of Hugging Face from a safetensors file, or a folder with model.safetensors: of
/// bert-base-uncased, for example. The classifier may be missing, and heads of other tasks are left
/// out. Throws lockstep::Error that names what else is missing or has other sizes. Call it on every
/// rank, before a Trainer is made.
void load_bert(Bert& model, const std::string& path);
