// Every operator that autocast computes in 16 bits computes in fp32 with a weight that is kept.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/amp/autocast.h>
#include <lockstep/amp/impl/kept_fp32.h>
#include <lockstep/collectives/exceptions.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/utils/rnn.h>

#include <functional>
#include <tuple>

#include "test_device.h"
#include "test_names.h"

namespace lockstep {
namespace {

using amp::Autocast;

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

TEST(KeptFp32, ProductsThatCompareTheDtypesOfTheirOperands) {
  const at::Tensor weight = kept({4, 6});
  const at::Tensor row = kept({6});
  const at::Tensor cube = kept({4, 6, 6});
  expect_fp32("tensordot", {3, 6},
              [&](const at::Tensor& x) { return at::tensordot(x, weight, {1}, {1}); });
  expect_fp32("inner", {3, 6}, [&](const at::Tensor& x) { return at::inner(x, weight); });
  expect_fp32("dot", {6}, [&](const at::Tensor& x) { return at::dot(row, x); });
  expect_fp32("vdot", {6}, [&](const at::Tensor& x) { return at::vdot(x, row); });
  expect_fp32("bilinear", {3, 6}, [&](const at::Tensor& x) { return at::bilinear(x, x, cube); });
  const at::Tensor bias = kept({4});
  expect_fp32("bilinear", {3, 6},
              [&, half = randn({4, 6, 6}).to(at::kBFloat16)](const at::Tensor& x) {
                return at::bilinear(x, x, half.to(x.scalar_type()), bias);
              });
  const at::Tensor length = kept({3, 1});
  expect_fp32("_weight_norm", {3, 6},
              [&](const at::Tensor& x) { return at::_weight_norm(x, length); });
  const at::Tensor direction = kept({3});
  expect_fp32("cross", {5, 3}, [&](const at::Tensor& x) {
    return at::linalg_cross(x, direction.expand({5, 3}));
  });
}

TEST(KeptFp32, ProductsOfVectorsTakeFp32ActivationsBeside16Bits) {
  const at::Tensor half = randn({4, 6}).to(at::kBFloat16);
  const at::Tensor wide = randn({6}).requires_grad_(true);  // as a kept layer makes it: no mark
  const at::Tensor column = randn({4}).requires_grad_(true);
  const Autocast region(device().type(), at::kBFloat16);
  for (const at::Tensor& product :
       {at::mv(half, wide), at::addmv(column, half, wide), at::addr(half, column, wide),
        at::linalg_multi_dot({column, half, wide}), at::dot(half[0], wide)}) {
    product.sum().backward();
  }
}

TEST(KeptFp32, OperatorsOfOneDtypeTakeAKeptOperandAtEachPlace) {
  const at::Tensor rows = at::arange(2);
  const at::Tensor index = at::arange(6).remainder(4).reshape({2, 3});
  const at::Tensor mask = at::eye(4, at::kBool).narrow(1, 0, 3);
  // Each of an x (4, 3) and a source (2, 3) or (4, 3).
  const std::vector<std::tuple<const char*, int64_t,
                               std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>>>
      operators = {
          {"index_put", 2, [&](auto& x, auto& s) { return at::index_put(x, {rows}, s); }},
          {"index_copy", 2, [&](auto& x, auto& s) { return at::index_copy(x, 0, rows, s); }},
          {"index_add", 2, [&](auto& x, auto& s) { return at::index_add(x, 0, rows, s); }},
          {"index_reduce", 2,
           [&](auto& x, auto& s) { return at::index_reduce(x, 0, rows, s, "mean"); }},
          {"scatter", 2, [&](auto& x, auto& s) { return at::scatter(x, 0, index, s); }},
          {"scatter_add", 2, [&](auto& x, auto& s) { return at::scatter_add(x, 0, index, s); }},
          {"scatter_reduce", 2,
           [&](auto& x, auto& s) { return at::scatter_reduce(x, 0, index, s, "sum"); }},
          {"masked_scatter", 4, [&](auto& x, auto& s) { return at::masked_scatter(x, mask, s); }},
          {"put", 2, [&](auto& x, auto& s) { return at::put(x, index, s); }},
          {"lerp", 4, [&](auto& x, auto& s) { return at::lerp(x, s, 0.25); }},
          {"lerp", 4, [&](auto& x, auto& s) { return at::lerp(x, s, s); }},
          {"meshgrid", 4,
           [&](auto& x, auto& s) {
             return at::meshgrid({x.flatten(), s.flatten()}, "ij")[1];
           }},
          {"cartesian_prod", 4,
           [&](auto& x, auto& s) {
             return at::cartesian_prod({x.flatten(), s.flatten()});
           }},
          {"embedding_bag", 4,
           [&](auto& x, auto& s) {
             return std::get<0>(at::embedding_bag(x, index.flatten(), at::arange(2) * 3, false, 0,
                                                  false, s.narrow(0, 0, 2).flatten()));
           }},
          {"linalg_solve", 4,
           [&](auto& x, auto& s) {
             return at::linalg_solve(x.narrow(0, 0, 3), s.narrow(0, 0, 3));
           }},
      };
  for (const auto& [name, source_rows, call] : operators) {
    for (const bool keeps_source : {false, true}) {
      SCOPED_TRACE(c10::str(name, keeps_source ? ", source kept" : ", x kept"));
      const at::Tensor weight = kept({keeps_source ? source_rows : 4, 3});
      const auto both = [&, rows_of = keeps_source ? 4 : source_rows, &call = call]() {
        return [=](const at::Tensor& other) {
          return keeps_source ? call(other, weight) : call(weight, other);
        };
      }();
      expect_fp32(name, {keeps_source ? 4 : source_rows, 3}, both);
    }
  }
}

TEST(KeptFp32, WritesInPlaceKeepTheDtypeOfTheTensorWritten) {
  const at::Tensor rows = at::arange(2);
  const at::Tensor index = at::zeros({2, 3}, at::kLong);
  const std::vector<
      std::pair<const char*, std::function<void(const at::Tensor&, const at::Tensor&)>>>
      writes = {
          {"index_put_", [&](auto& x, auto& s) { x.index_put_({rows}, s); }},
          {"index_copy_", [&](auto& x, auto& s) { x.index_copy_(0, rows, s); }},
          {"index_add_", [&](auto& x, auto& s) { x.index_add_(0, rows, s); }},
          {"index_reduce_", [&](auto& x, auto& s) { x.index_reduce_(0, rows, s, "mean"); }},
          {"scatter_", [&](auto& x, auto& s) { x.scatter_(0, index, s); }},
          {"scatter_add_", [&](auto& x, auto& s) { x.scatter_add_(0, index, s); }},
          {"scatter_reduce_", [&](auto& x, auto& s) { x.scatter_reduce_(0, index, s, "sum"); }},
          {"masked_scatter_", [&](auto& x, auto& s) { x.masked_scatter_(x > 100, s); }},
          {"put_", [&](auto& x, auto& s) { x.put_(index, s); }},
          {"lerp_", [&](auto& x, auto& s) { x.narrow(0, 0, 2).lerp_(s, 0.5); }},
          {"addmm_",
           [&](auto& x, auto& s) {
             x.addmm_(s.t().repeat({2, 1}).narrow(0, 0, 4), s);
           }},
      };
  for (const auto& [name, write] : writes) {
    SCOPED_TRACE(name);
    const at::Tensor source = randn({2, 3});  // an activation that a kept weight made: not marked
    const at::Tensor expected = at::zeros({4, 3}, at::kBFloat16);
    write(expected, source.to(at::kBFloat16));
    const at::Tensor written = at::zeros({4, 3}, at::kBFloat16);
    const at::Tensor wide = at::zeros({4, 3});
    const Autocast region(device().type(), at::kBFloat16);
    write(written, source);
    EXPECT_TRUE(at::equal(written, expected));
    write(wide, source.to(at::kBFloat16));
    EXPECT_EQ(wide.scalar_type(), at::kFloat);
  }
}

TEST(KeptFp32, NormsTakeParametersOfSeveralDtypes) {
  for (const at::ScalarType input : {at::kBFloat16, at::kFloat}) {
    for (const bool keeps_weight : {true, false}) {
      const at::Tensor x = randn({4, 6}).to(input);
      const at::Tensor one = kept({6});
      const at::Tensor other = randn({6}).to(at::kBFloat16);
      const at::Tensor weight = keeps_weight ? one : other;
      const at::Tensor bias = keeps_weight ? other : one;
      const at::Tensor mean = at::zeros({6}), variance = at::ones({6});
      const Autocast region(device().type(), at::kBFloat16);
      const auto expect_close = [&](const at::Tensor& found, const at::Tensor& expected) {
        EXPECT_TRUE(at::allclose(found.to(at::kFloat), expected, 0.02, 0.02));
        found.sum().backward();
      };
      const at::Tensor w = weight.to(at::kFloat), b = bias.to(at::kFloat), v = x.to(at::kFloat);
      expect_close(at::layer_norm(x, {6}, weight, bias), at::layer_norm(v, {6}, w, b));
      expect_close(at::group_norm(x, 2, weight, bias), at::group_norm(v, 2, w, b));
      expect_close(at::batch_norm(x, weight, bias, mean, variance, true, 0.1, 1e-5, false),
                   at::batch_norm(v, w, b, mean.clone(), variance.clone(), true, 0.1, 1e-5, false));
    }
  }
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
