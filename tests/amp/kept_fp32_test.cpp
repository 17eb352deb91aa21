// Every operator that autocast computes in 16 bits computes in fp32 with a weight that is kept.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/amp/autocast.h>
#include <lockstep/amp/casting/kept_fp32.h>
#include <lockstep/collectives/error.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/utils/rnn.h>

#include <functional>
#include <tuple>

#include "test_device.h"

namespace lockstep {
namespace {

using amp::Autocast;
using testing::device;
using testing::randn;

using Call = std::function<at::Tensor(const at::Tensor&)>;

at::Tensor kept(at::IntArrayRef sizes) {
  const at::Tensor weight = randn(sizes).requires_grad_(true);
  amp::compute_in_fp32(weight);
  return weight;
}

void keep(const torch::nn::Module& module) {
  for (const at::Tensor& parameter : module.parameters()) {
    amp::compute_in_fp32(parameter);
  }
}

/// A half input gives, in a region, the bits that it gives in fp32 outside.
void expect_fp32(const char* name, at::IntArrayRef sizes, const Call& call) {
  SCOPED_TRACE(name);
  const at::Tensor x = randn(sizes).to(at::kBFloat16);
  const at::Tensor expected = call(x.to(at::kFloat));
  const Autocast region(device().type(), at::kBFloat16);
  const at::Tensor found = call(x);
  EXPECT_EQ(found.scalar_type(), at::kFloat);
  EXPECT_TRUE(at::equal(found, expected));
  if (found.requires_grad()) {
    found.sum().backward();
  }
}

template <typename Layer, typename Options>
void expect_recurrent_fp32(const char* name, const Options& options) {
  Layer layer(options);
  layer->to(device());
  keep(*layer);
  expect_fp32(name, {5, 3, 4}, [&](const at::Tensor& x) { return std::get<0>(layer->forward(x)); });
  const at::Tensor lengths = at::tensor({5, 3, 2}, at::kLong);
  expect_fp32(name, {5, 3, 4}, [&](const at::Tensor& x) {
    const auto packed = torch::nn::utils::rnn::pack_padded_sequence(x, lengths);
    return std::get<0>(layer->forward_with_packed_input(packed)).data();
  });
  layer->eval();
  const at::NoGradGuard no_grad;
  const at::Tensor x = randn({5, 3, 4});
  const at::Tensor expected = std::get<0>(layer->forward(x));
  const Autocast region(device().type(), at::kBFloat16);
  EXPECT_TRUE(at::equal(std::get<0>(layer->forward(x)), expected)) << name;
}

TEST(KeptFp32, RecurrentLayers) {
  expect_recurrent_fp32<torch::nn::LSTM>(
      "lstm", torch::nn::LSTMOptions(4, 6).num_layers(2).bidirectional(true));
  expect_recurrent_fp32<torch::nn::GRU>("gru", torch::nn::GRUOptions(4, 6).num_layers(2));
  expect_recurrent_fp32<torch::nn::RNN>("rnn_tanh", torch::nn::RNNOptions(4, 6));
  expect_recurrent_fp32<torch::nn::RNN>("rnn_relu",
                                        torch::nn::RNNOptions(4, 6).nonlinearity(torch::kReLU));
}

TEST(KeptFp32, RecurrentCells) {
  const auto state = [](const at::Tensor& x) { return at::zeros({3, 6}, x.options()); };
  const auto input = [](int64_t gates) { return kept({gates * 6, 4}); };
  const auto hidden = [](int64_t gates) { return kept({gates * 6, 6}); };
  expect_fp32("lstm", {3, 4}, [&, w = input(4), v = hidden(4)](const at::Tensor& x) {
    return std::get<0>(at::lstm_cell(x, {state(x), state(x)}, w, v));
  });
  expect_fp32("gru", {3, 4}, [&, w = input(3), v = hidden(3)](const at::Tensor& x) {
    return at::gru_cell(x, state(x), w, v);
  });
  expect_fp32("rnn_tanh", {3, 4}, [&, w = input(1), v = hidden(1)](const at::Tensor& x) {
    return at::rnn_tanh_cell(x, state(x), w, v);
  });
  expect_fp32("rnn_relu", {3, 4}, [&, w = input(1), v = hidden(1)](const at::Tensor& x) {
    return at::rnn_relu_cell(x, state(x), w, v);
  });
}

template <typename Layer, size_t dimensions>
void expect_convolution_fp32(const char* name, at::IntArrayRef sizes) {
  for (const bool same : {true, false}) {
    auto options = torch::nn::ConvOptions<dimensions>(4, 6, 3);
    Layer layer(same ? options.padding(torch::kSame) : options.padding(1));
    layer->to(device());
    keep(*layer);
    expect_fp32(name, sizes, [&](const at::Tensor& x) { return layer->forward(x); });
  }
}

TEST(KeptFp32, ConvolutionsWithEveryPadding) {
  expect_convolution_fp32<torch::nn::Conv1d, 1>("conv1d", {2, 4, 7});
  expect_convolution_fp32<torch::nn::Conv2d, 2>("conv2d", {2, 4, 7, 5});
  expect_convolution_fp32<torch::nn::Conv3d, 3>("conv3d", {2, 4, 3, 7, 5});
  const at::Tensor weight = kept({6, 4, 3});
  expect_fp32("_convolution_mode", {2, 4, 7}, [&](const at::Tensor& x) {
    return at::_convolution_mode(x, weight, {}, {1}, "same", {1}, 1);
  });
  expect_fp32("_convolution.deprecated", {2, 4, 7}, [&](const at::Tensor& x) {
    return at::_convolution(x, weight, {}, {1}, {1}, {1}, /*transposed=*/false, {0}, /*groups=*/1,
                            /*benchmark=*/false, /*deterministic=*/false, /*cudnn_enabled=*/true);
  });
  const at::Tensor time_first = kept({3, 4, 6});
  const at::Tensor bias = kept({6});
  expect_fp32("conv_tbc", {7, 2, 4},
              [&](const at::Tensor& x) { return at::conv_tbc(x, time_first, bias); });
}

TEST(KeptFp32, OtherProducts) {
  const at::Tensor weight = kept({4, 6});
  const at::Tensor bias = kept({6});
  expect_fp32("linalg_vecdot", {3, 6},
              [&](const at::Tensor& x) { return at::linalg_vecdot(x, bias); });
  const at::NoGradGuard no_grad;  // the next has no derivative
  expect_fp32("_addmm_activation", {3, 4},
              [&](const at::Tensor& x) { return at::_addmm_activation(bias, x, weight); });
}

TEST(KeptFp32, AnOperatorWithoutFp32IsRefusedByName) {
  const at::Tensor query = kept({1, 2, 3, 4});
  const Autocast region(device().type(), at::kBFloat16);
  EXPECT_EQ(at::scaled_dot_product_attention(query, query, query).scalar_type(), at::kFloat);
  EXPECT_THAT([&] { at::_scaled_dot_product_flash_attention(query, query, query); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr(
                  "_scaled_dot_product_flash_attention computes in 16 bits only")));
}

}  // namespace
}  // namespace lockstep
