#pragma once

#include <lockstep/checkpointing/activation/checkpoint.h>
#include <lockstep/checkpointing/activation/planned_chain.h>
#include <torch/nn.h>

#include <string>

/// BERT-base is 12 layers of width 768, and a vocabulary of 30522 pieces.
struct BertSize {
  int64_t vocabulary = 64;
  int64_t layers = 2;
  int64_t width = 64;
  int64_t length = 16;
};

/// An encoder of transformer layers with a classifier on the first piece (three classes).
struct BertImpl : torch::nn::Module {
  BertImpl(const BertSize& size, bool checkpointed)
      : pieces(register_module("pieces", torch::nn::Embedding(size.vocabulary, size.width))),
        places(register_module("places", torch::nn::Embedding(size.length, size.width))),
        norm(register_module("norm",
                             torch::nn::LayerNorm(torch::nn::LayerNormOptions({size.width})))),
        pooler(register_module("pooler", torch::nn::Linear(size.width, size.width))),
        classifier(register_module("classifier", torch::nn::Linear(size.width, 3))) {
    torch::nn::init::normal_(pieces->weight, 0.0, 0.02);
    torch::nn::init::normal_(places->weight, 0.0, 0.02);
    lockstep::Chain chain;
    for (int64_t number = 0; number < size.layers; ++number) {
      chain.push_back(layer("layer" + std::to_string(number), size.width, checkpointed));
    }
    layers = lockstep::PlannedChain(std::move(chain));
  }

  /// ids: [batch, length], 0 where there is no piece. Returns scores, [batch, 3].
  torch::Tensor forward(const torch::Tensor& ids) {
    const torch::Tensor place = torch::arange(ids.size(1), ids.options());
    *padding = ids.eq(0);
    torch::Tensor h = norm(pieces(ids) + places(place));
    h = layers(torch::dropout(h, 0.1, is_training()).transpose(0, 1));
    return classifier(torch::dropout(pooler(h[0]).tanh(), 0.1, is_training()));
  }

  lockstep::ChainStage layer(const std::string& name, int64_t width, bool checkpointed) {
    torch::nn::TransformerEncoderLayer layer(
        torch::nn::TransformerEncoderLayerOptions(width, std::max<int64_t>(1, width / 64))
            .dim_feedforward(4 * width)
            .dropout(0.1)
            .activation(torch::kGELU));
    register_module(name, layer);
    auto run = [layer](const torch::Tensor& x, const torch::Tensor& mask) mutable {
      return layer(x, /*src_mask=*/torch::Tensor(), mask);
    };
    return {name,
            [run, padding = padding, checkpointed](torch::Tensor x) mutable {
              return checkpointed ? lockstep::checkpoint(run, x, *padding) : run(x, *padding);
            },
            [layer] { return layer->parameters(); }};
  }

  torch::nn::Embedding pieces, places;
  torch::nn::LayerNorm norm;
  torch::nn::Linear pooler, classifier;
  std::shared_ptr<torch::Tensor> padding = std::make_shared<torch::Tensor>();  // of this batch
  lockstep::PlannedChain layers;
};
TORCH_MODULE(Bert);
