#include "test_device.h"
#include "test_names.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>
#include <lockstep/amp/autocast.h>
#include <lockstep/collectives/exceptions.h>

#include <stdexcept>
#include <thread>

namespace lockstep {
namespace {

using amp::Autocast;

bool enabled() {
  return at::autocast::is_autocast_enabled(device().type());
}

at::ScalarType product_dtype() {
  return at::mm(ones({2, 2}), ones({2, 2})).scalar_type();
}

at::Tensor leaf(double value) {
  return full({1, 2}, value).requires_grad_(true);
}

TEST(Autocast, CastsInsideTheRegionOnly) {
  EXPECT_EQ(product_dtype(), at::kFloat);
  {
    Autocast region(device().type(), at::kBFloat16);
    EXPECT_EQ(product_dtype(), at::kBFloat16);
  }
  EXPECT_EQ(product_dtype(), at::kFloat);
}

TEST(Autocast, NestsAndRestoresDtypeAndState) {
  const auto dtype = at::autocast::get_autocast_dtype(device().type());
  {
    Autocast outer(device().type(), at::kHalf);
    EXPECT_EQ(product_dtype(), at::kHalf);
    {
      Autocast off(device().type(), at::kHalf, /*enabled=*/false);
      EXPECT_EQ(product_dtype(), at::kFloat);
      Autocast inner(device().type(), at::kBFloat16);
      EXPECT_EQ(product_dtype(), at::kBFloat16);
    }
    EXPECT_EQ(product_dtype(), at::kHalf);
  }
  EXPECT_FALSE(enabled());
  EXPECT_EQ(at::autocast::get_autocast_dtype(device().type()), dtype);
}

TEST(Autocast, RestoresWhenAnExceptionPasses) {
  EXPECT_THROW(
      {
        Autocast region(device().type(), at::kBFloat16);
        throw std::runtime_error("in the forward");
      },
      std::runtime_error);
  EXPECT_FALSE(enabled());
  EXPECT_EQ(product_dtype(), at::kFloat);
}

TEST(Autocast, ActsOnTheCallingThreadOnly) {
  Autocast region(device().type(), at::kBFloat16);
  bool elsewhere = true;
  std::thread([&] { elsewhere = enabled(); }).join();
  EXPECT_FALSE(elsewhere);
  EXPECT_TRUE(enabled());
}

TEST(Autocast, RefusesFp32) {
  EXPECT_THROW(Autocast(device().type(), at::kFloat), Error);
  EXPECT_FALSE(enabled());
  EXPECT_NO_THROW(Autocast(device().type(), at::kFloat, /*enabled=*/false));
}

TEST(Autocast, LeavingTheRegionForgetsOldWeights) {
  const auto weight = leaf(1.0);
  const auto forward = [&] {
    Autocast region(device().type(), at::kBFloat16);
    return at::linear(ones({1, 2}), weight).item<float>();
  };
  EXPECT_EQ(forward(), 2.0F);
  weight.data().fill_(4.0);
  EXPECT_EQ(forward(), 8.0F);
}

TEST(Autocast, ClearCacheForgetsWeightsWhoseResultsAreHeld) {
  const auto weight = leaf(1.0);
  Autocast region(device().type(), at::kBFloat16);
  const auto held = at::linear(ones({1, 2}), weight);
  weight.data().fill_(4.0);  // neither counted by LibTorch nor after a backward
  EXPECT_EQ(at::linear(ones({1, 2}), weight).item<float>(), 2.0F);
  Autocast::clear_cache();
  EXPECT_EQ(at::linear(ones({1, 2}), weight).item<float>(), 8.0F);
}

TEST(CachedCasts, ARegionAcrossAnUpdateSeesNewWeights) {
  const auto weight = leaf(1.0);
  Autocast region(device().type(), at::kBFloat16);
  EXPECT_EQ(at::linear(ones({1, 2}), weight).item<float>(), 2.0F);
  weight.data().fill_(4.0);
  EXPECT_EQ(at::linear(ones({1, 2}), weight).item<float>(), 8.0F);
  {
    at::NoGradGuard no_grad;
    weight.add_(1.0);
  }
  EXPECT_EQ(at::linear(ones({1, 2}), weight).item<float>(), 10.0F);
}

TEST(CachedCasts, RawAutocastKeepsTheOldWeight) {
  const auto weight = leaf(1.0);
  at::autocast::set_autocast_enabled(device().type(), true);
  at::autocast::set_autocast_dtype(device().type(), at::kBFloat16);
  EXPECT_EQ(at::linear(ones({1, 2}), weight).item<float>(), 2.0F);
  weight.data().fill_(4.0);
  EXPECT_EQ(at::linear(ones({1, 2}), weight).item<float>(), 2.0F);
  at::autocast::set_autocast_enabled(device().type(), false);
  at::autocast::clear_cache();
  const auto forward = [&] {  // a region of ours for each
    Autocast region(device().type(), at::kBFloat16);
    return at::linear(ones({1, 2}), weight).item<float>();
  };
  EXPECT_EQ(forward(), 8.0F);
  weight.data().fill_(1.0);
  EXPECT_EQ(forward(), 2.0F);
}

TEST(CachedCasts, RawAutocastGivesANestedDtypeTheWeightOfTheOuterOne) {
  const auto weight = leaf(1.0);
  const auto dtype = at::autocast::get_autocast_dtype(device().type());
  at::autocast::set_autocast_enabled(device().type(), true);
  at::autocast::set_autocast_dtype(device().type(), at::kHalf);
  at::linear(ones({1, 2}), weight);
  at::autocast::set_autocast_dtype(device().type(), at::kBFloat16);
  EXPECT_ANY_THROW(at::linear(ones({1, 2}), weight));  // bf16 input, cached fp16 weight
  at::autocast::set_autocast_dtype(device().type(), dtype);
  at::autocast::set_autocast_enabled(device().type(), false);
  at::autocast::clear_cache();
  const Autocast outer(device().type(), at::kHalf);
  at::linear(ones({1, 2}), weight);
  const Autocast inner(device().type(), at::kBFloat16);
  EXPECT_EQ(at::linear(ones({1, 2}), weight).scalar_type(), at::kBFloat16);
}

TEST(Autocast, ANestedRegionOfAnotherDtypeCastsWeightsAnew) {
  const auto weight = leaf(1.0);
  Autocast outer(device().type(), at::kHalf);
  at::linear(ones({1, 2}), weight);
  {
    Autocast inner(device().type(), at::kBFloat16);
    EXPECT_EQ(at::linear(ones({1, 2}), weight).scalar_type(), at::kBFloat16);
  }
  EXPECT_EQ(at::linear(ones({1, 2}), weight).scalar_type(), at::kHalf);
}

TEST(Autocast, GradientsReachLeavesSeenWithoutGradientsFirst) {
  const auto weight = leaf(1.0);
  Autocast region(device().type(), at::kBFloat16);
  {
    at::NoGradGuard no_grad;
    at::linear(ones({1, 2}), weight);
  }
  at::linear(ones({1, 2}), weight).sum().backward();
  EXPECT_TRUE(weight.grad().defined());
}

}  // namespace
}  // namespace lockstep
