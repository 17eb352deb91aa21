#pragma once

#include <torch/nn.h>

#include <string>

/// The sizes of a WordLm.
struct WordLmSize {
  std::string cell = "LSTM";  // or GRU, RNN_TANH, RNN_RELU
  int64_t words = 0;          // of the vocabulary
  int64_t width = 200;        // of a word's vector
  int64_t hidden = 200;
  int64_t layers = 2;
  double dropout = 0.2;
  bool tied = false;  // the decoder has the weights of the encoder; requires hidden == width
};

/// What a recurrent network carries from one stretch of text to the next: [layers, columns,
/// hidden]. Undefined tensors: zeros.
struct WordLmState {
  torch::Tensor hidden;
  torch::Tensor cell;  // of an LSTM
};

/// Predicts the next word at each place. Names and shapes of the weights, and what is computed, are
/// those of RNNModel in pytorch/examples/word_language_model, so weights of either can be loaded
/// into the other. That model returns log_softmax(scores).
struct WordLmImpl : torch::nn::Module {
  explicit WordLmImpl(const WordLmSize& size);

  /// words: int64 [length, columns]. Returns scores, [length, columns, words], and replaces `state`
  /// by the state behind the last word, which is part of the graph: see detached().
  torch::Tensor forward(const torch::Tensor& words, WordLmState& state);

  torch::nn::Dropout drop;
  torch::nn::Embedding encoder;
  torch::nn::LSTM lstm{nullptr};  // one of these three; its name is "rnn"
  torch::nn::GRU gru{nullptr};
  torch::nn::RNN rnn{nullptr};
  torch::nn::Linear decoder;
};
TORCH_MODULE(WordLm);

/// The same values, outside of the graph.
WordLmState detached(const WordLmState& state);
