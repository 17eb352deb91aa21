#pragma once

#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>

#include <cmath>
#include <memory>
#include <string>

namespace lockstep::testing {

/// A model of rows of 48 numbers that belong to one of 3 classes. Each has dropout.
struct SmallModel : torch::nn::Module {
  static constexpr int64_t inputs = 48;
  static constexpr int64_t classes = 3;
  virtual at::Tensor forward(at::Tensor x) = 0;
};

struct SmallMlp : SmallModel {
  SmallMlp()
      : first(register_module("first", torch::nn::Linear(inputs, 16))),
        drop(register_module("drop", torch::nn::Dropout(0.3))),
        last(register_module("last", torch::nn::Linear(16, classes))) {}
  at::Tensor forward(at::Tensor x) override {
    return last->forward(drop->forward(at::tanh(first->forward(x))));
  }
  torch::nn::Linear first;
  torch::nn::Dropout drop;
  torch::nn::Linear last;
};

struct SmallLstm : SmallModel {
  SmallLstm()
      : lstm(register_module(
            "lstm",
            torch::nn::LSTM(
                torch::nn::LSTMOptions(8, 12).num_layers(2).batch_first(true).dropout(0.3)))),
        last(register_module("last", torch::nn::Linear(12, classes))) {}
  at::Tensor forward(at::Tensor x) override {
    return last->forward(std::get<0>(lstm->forward(x.reshape({-1, 6, 8}))).select(1, 5));
  }
  torch::nn::LSTM lstm;
  torch::nn::Linear last;
};

/// Running statistics as buffers.
struct SmallConvNet : SmallModel {
  SmallConvNet()
      : conv(register_module("conv",
                             torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 6, 3).padding(1)))),
        norm(register_module("norm", torch::nn::BatchNorm2d(6))),
        drop(register_module("drop", torch::nn::Dropout(0.3))),
        last(register_module("last", torch::nn::Linear(96, classes))) {}
  at::Tensor forward(at::Tensor x) override {
    x = at::relu(norm->forward(conv->forward(x.reshape({-1, 3, 4, 4}))));
    return last->forward(drop->forward(x.flatten(1)));
  }
  torch::nn::Conv2d conv;
  torch::nn::BatchNorm2d norm;
  torch::nn::Dropout drop;
  torch::nn::Linear last;
};

/// One block, one head.
struct SmallTransformer : SmallModel {
  static constexpr int64_t width = 16;
  SmallTransformer()
      : embed(register_module("embed", torch::nn::Linear(8, width))),
        norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})))),
        qkv(register_module("qkv", torch::nn::Linear(width, 3 * width))),
        drop(register_module("drop", torch::nn::Dropout(0.3))),
        widen(register_module("widen", torch::nn::Linear(width, 2 * width))),
        narrow(register_module("narrow", torch::nn::Linear(2 * width, width))),
        last(register_module("last", torch::nn::Linear(width, classes))) {}
  at::Tensor forward(at::Tensor x) override {
    x = embed->forward(x.reshape({-1, 6, 8}));
    const auto parts = qkv->forward(norm->forward(x)).chunk(3, -1);
    const at::Tensor scores = parts[0].matmul(parts[1].transpose(1, 2)) / std::sqrt(double{width});
    const at::Tensor weights = at::softmax(scores, -1).to(parts[2].scalar_type());
    x = x + drop->forward(weights.matmul(parts[2]));
    x = x + narrow->forward(at::gelu(widen->forward(norm->forward(x))));
    return last->forward(x.mean(1));
  }
  torch::nn::Linear embed;
  torch::nn::LayerNorm norm;
  torch::nn::Linear qkv;
  torch::nn::Dropout drop;
  torch::nn::Linear widen;
  torch::nn::Linear narrow;
  torch::nn::Linear last;
};

inline std::shared_ptr<SmallModel> small_model(const std::string& name) {
  if (name == "mlp") {
    return std::make_shared<SmallMlp>();
  }
  if (name == "lstm") {
    return std::make_shared<SmallLstm>();
  }
  if (name == "conv") {
    return std::make_shared<SmallConvNet>();
  }
  return std::make_shared<SmallTransformer>();
}

}  // namespace lockstep::testing
