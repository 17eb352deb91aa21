#include "models/word_lm.h"

#include <lockstep/collectives/check.h>
#include <optional>
#include <tuple>

namespace {

template <typename Options>
Options layered(const WordLmSize& size) {
  return Options(size.width, size.hidden)
      .num_layers(size.layers)
      .dropout(size.layers > 1 ? size.dropout : 0.0);
}

}  // namespace

WordLmImpl::WordLmImpl(const WordLmSize& size)
    : drop(register_module("drop", torch::nn::Dropout(size.dropout))),
      encoder(register_module("encoder", torch::nn::Embedding(size.words, size.width))),
      decoder(nullptr) {
  if (size.cell == "LSTM") {
    lstm = register_module("rnn", torch::nn::LSTM(layered<torch::nn::LSTMOptions>(size)));
  } else if (size.cell == "GRU") {
    gru = register_module("rnn", torch::nn::GRU(layered<torch::nn::GRUOptions>(size)));
  } else {
    LOCKSTEP_CHECK(size.cell == "RNN_TANH" || size.cell == "RNN_RELU", "WordLm: the cell is ",
                   size.cell, ", expected LSTM, GRU, RNN_TANH or RNN_RELU");
    auto options = layered<torch::nn::RNNOptions>(size);
    if (size.cell == "RNN_RELU") {
      options.nonlinearity(torch::kReLU);
    }
    rnn = register_module("rnn", torch::nn::RNN(options));
  }
  decoder = register_module("decoder", torch::nn::Linear(size.hidden, size.words));
  if (size.tied) {
    LOCKSTEP_CHECK(size.hidden == size.width,
                   "WordLm: tied weights need hidden == width, they are ", size.hidden, " and ",
                   size.width);
    decoder->weight = encoder->weight;
  }
  const torch::NoGradGuard no_grad;
  encoder->weight.uniform_(-0.1, 0.1);
  decoder->weight.uniform_(-0.1, 0.1);
  decoder->bias.zero_();
}

torch::Tensor WordLmImpl::forward(const torch::Tensor& words, WordLmState& state) {
  const torch::Tensor vectors = drop(encoder(words));
  torch::Tensor output;
  if (lstm) {
    std::optional<std::tuple<torch::Tensor, torch::Tensor>> before;
    if (state.hidden.defined()) {
      before.emplace(state.hidden, state.cell);
    }
    std::tuple<torch::Tensor, torch::Tensor> after;
    std::tie(output, after) = lstm->forward(vectors, before);
    std::tie(state.hidden, state.cell) = after;
  } else {
    std::tie(output, state.hidden) =
        gru ? gru->forward(vectors, state.hidden) : rnn->forward(vectors, state.hidden);
  }
  return decoder(drop(output));
}

WordLmState detached(const WordLmState& state) {
  return {state.hidden.detach(), state.cell.defined() ? state.cell.detach() : torch::Tensor()};
}
