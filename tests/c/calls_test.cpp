// The parts of the C interface that need no model: status codes, arrays, losses.
#include <gmock/gmock.h>
#include <lockstep/bindings/c/calls/arrays.h>
#include <lockstep/bindings/c/calls/losses.h>
#include <lockstep/bindings/c/calls/status.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <torch/torch.h>

#include <array>
#include <limits>
#include <new>
#include <thread>

#include "error_of.h"
#include "test_names.h"

namespace lockstep::c {
namespace {

using lockstep::testing::error_of;

TEST(CStatus, IsTheExitCodeOfTheError) {
  for (const ExitCode code :
       {ExitCode::usage, ExitCode::environment, ExitCode::data, ExitCode::snapshot,
        ExitCode::diverged, ExitCode::non_finite, ExitCode::out_of_memory, ExitCode::preempted}) {
    EXPECT_EQ(status_of([&] { throw Error("why", code); }), static_cast<int>(code));
    EXPECT_STREQ(last_error(), "why");
  }
  EXPECT_EQ(status_of([] { throw CommunicationError("gone"); }), LOCKSTEP_PEER_LOST);
  EXPECT_EQ(status_of([] { throw std::bad_alloc(); }), LOCKSTEP_OUT_OF_MEMORY);
  EXPECT_EQ(status_of([] { throw std::logic_error("odd"); }), LOCKSTEP_USAGE);
  EXPECT_EQ(status_of([] { throw 7; }), LOCKSTEP_USAGE);
}

TEST(CStatus, KeepsTheMessageOfEachThread) {
  EXPECT_EQ(status_of([] { throw Error("here"); }), LOCKSTEP_USAGE);
  EXPECT_EQ(status_of([] {}), LOCKSTEP_OK);
  EXPECT_STREQ(lockstep_last_error(), "here");
  std::string elsewhere = "?";
  std::thread([&] { elsewhere = lockstep_last_error(); }).join();
  EXPECT_EQ(elsewhere, "");
}

TEST(CStatus, NullHandlesAreRefusedAndMayBeDestroyed) {
  lockstep_trainer* trainer = nullptr;
  lockstep_report report;
  EXPECT_EQ(lockstep_trainer_report(trainer, &report), LOCKSTEP_USAGE);
  EXPECT_THAT(lockstep_last_error(), HasSubstr("the trainer is NULL"));
  EXPECT_EQ(lockstep_trainer_step(trainer, nullptr, 0, nullptr), LOCKSTEP_USAGE);
  EXPECT_EQ(lockstep_trainer_save(trainer), LOCKSTEP_USAGE);
  EXPECT_EQ(lockstep_model_load(nullptr, nullptr, "net.pt2"), LOCKSTEP_USAGE);
  lockstep_runtime* runtime = nullptr;
  EXPECT_EQ(lockstep_runtime_create_on(&runtime, nullptr, 8, ""), LOCKSTEP_USAGE);
  EXPECT_EQ(lockstep_runtime_create_on(&runtime, &trainer, 3, ""), LOCKSTEP_USAGE);
  EXPECT_THAT(lockstep_last_error(), HasSubstr("sizeof(MPI_Comm)"));
  EXPECT_EQ(lockstep_trainer_destroy(nullptr), LOCKSTEP_OK);
  EXPECT_EQ(lockstep_model_destroy(nullptr), LOCKSTEP_OK);
  EXPECT_EQ(lockstep_runtime_destroy(nullptr), LOCKSTEP_OK);
}

TEST(CArrays, AreBorrowedWithoutACopy) {
  std::array<double, 6> numbers = {0, 1, 2, 3, 4, 5};
  const at::Tensor rows = borrowed({numbers.data(), LOCKSTEP_FLOAT64, 2, {2, 3}, {0}}, "x");
  const at::Tensor columns = borrowed({numbers.data(), LOCKSTEP_FLOAT64, 2, {2, 3}, {1, 2}}, "x");
  EXPECT_EQ(rows.data_ptr(), numbers.data());
  EXPECT_EQ(columns.data_ptr(), numbers.data());
  EXPECT_EQ(rows[1][0].item<double>(), 3.0);
  EXPECT_EQ(columns[1][0].item<double>(), 1.0);
  EXPECT_EQ(columns[1][2].item<double>(), 5.0);
  const at::Tensor every_other = borrowed({numbers.data(), LOCKSTEP_FLOAT64, 1, {3}, {2}}, "x");
  EXPECT_TRUE(at::equal(every_other, at::tensor({0.0, 2.0, 4.0}, at::kDouble)));
  int64_t whole = 7;
  EXPECT_EQ(borrowed({&whole, LOCKSTEP_INT64, 0, {0}, {0}}, "x").item<int64_t>(), 7);
  EXPECT_EQ(borrowed({nullptr, LOCKSTEP_INT32, 1, {0}, {0}}, "x").numel(), 0);
}

TEST(CArrays, ThatNoTensorCanBeAreRefused) {
  float number = 0;
  const auto refusal = [&](const lockstep_array& array) {
    return error_of([&] { borrowed(array, "input 1"); });
  };
  EXPECT_THAT(refusal({&number, 0, 0, {0}, {0}}), HasSubstr("input 1: dtype is 0"));
  EXPECT_THAT(refusal({&number, LOCKSTEP_FLOAT32, 9, {1}, {0}}), HasSubstr("rank is 9"));
  EXPECT_THAT(refusal({&number, LOCKSTEP_FLOAT32, -1, {1}, {0}}), HasSubstr("rank is -1"));
  EXPECT_THAT(refusal({&number, LOCKSTEP_FLOAT32, 1, {-1}, {0}}), HasSubstr("shape"));
  char why[] = "the array is character";
  EXPECT_THAT(refusal({why, LOCKSTEP_REFUSED, 1, {1}, {0}}),
              HasSubstr("input 1: the array is character"));
  EXPECT_THAT(refusal({nullptr, LOCKSTEP_FLOAT32, 1, {1}, {0}}), HasSubstr("data is NULL"));
  EXPECT_THAT(error_of([] { borrowed(nullptr, 0, "input"); }), HasSubstr("at least 1"));
}

TEST(CArrays, RunBackwardInMemory) {
  std::array<float, 6> numbers = {0, 1, 2, 3, 4, 5};
  const lockstep_array turned = {&numbers[4], LOCKSTEP_FLOAT32, 2, {2, 3}, {1, -2}};
  EXPECT_TRUE(
      at::equal(borrowed(turned, "x"), at::tensor({4, 2, 0, 5, 3, 1}, at::kFloat).view({2, 3})));
  write(at::arange(6, at::kFloat).view({2, 3}), turned, "y");
  EXPECT_THAT(numbers, ::testing::ElementsAre(2, 5, 1, 4, 0, 3));
  write({at::arange(6, at::kFloat)},
        std::vector<lockstep_array>{{&numbers[5], LOCKSTEP_FLOAT32, 1, {6}, {-1}}}.data(), 1);
  EXPECT_THAT(numbers, ::testing::ElementsAre(5, 4, 3, 2, 1, 0));
  EXPECT_THAT(error_of([&] { kept(turned, "state heat"); }),
              HasSubstr("state heat: an array that is kept has no negative strides"));
}

TEST(CArrays, OfASizeThatOverflowsAreRefused) {
  std::array<float, 24> numbers = {};
  constexpr int64_t kLarge = std::numeric_limits<int64_t>::max();
  const std::vector<lockstep_array> overflowing = {
      {numbers.data(), LOCKSTEP_FLOAT32, 2, {8, 3}, {int64_t{1} << 61, 1}},
      {numbers.data(), LOCKSTEP_FLOAT32, 2, {8, 3}, {kLarge, kLarge}},
      {numbers.data(), LOCKSTEP_FLOAT32, 2, {8, 3}, {kLarge / 7, 1}},
      {numbers.data(), LOCKSTEP_INT64, 1, {2}, {kLarge / 8}},  // fits, but not from this address
      {numbers.data(), LOCKSTEP_FLOAT32, 2, {8, 3}, {-(int64_t{1} << 61), 1}},
      {numbers.data(), LOCKSTEP_FLOAT32, 1, {2}, {std::numeric_limits<int64_t>::min()}},
      {numbers.data(), LOCKSTEP_FLOAT32, 2, {2, 2}, {-kLarge / 4, -kLarge / 4}},
      {numbers.data(), LOCKSTEP_FLOAT32, 2, {int64_t{1} << 40, int64_t{1} << 40}, {0}},
      {numbers.data(), LOCKSTEP_FLOAT32, 1, {kLarge}, {0}},
      {numbers.data(), LOCKSTEP_FLOAT64, 1, {kLarge / 8}, {0}},
      {numbers.data(), LOCKSTEP_FLOAT32, 3, {kLarge, kLarge, 0}, {0}},
      {numbers.data(), LOCKSTEP_FLOAT32, 2, {int64_t{1} << 40, int64_t{1} << 40}, {0, 1}},
      {numbers.data(), LOCKSTEP_FLOAT64, 8, {1 << 20, 1 << 20, 1 << 20, 1 << 20, 1, 1, 1, 1}, {0}}};
  for (const lockstep_array& array : overflowing) {
    EXPECT_EQ(status_of([&] { borrowed(array, "input"); }), LOCKSTEP_DATA);
    EXPECT_THAT(lockstep_last_error(), HasSubstr("input: shape"));
    EXPECT_THAT(lockstep_last_error(), HasSubstr("overflows"));
    EXPECT_EQ(status_of([&] { write(at::ones({8, 3}), array, "output"); }), LOCKSTEP_DATA);
  }
  // The stride of a dimension with one element says nothing.
  const lockstep_array row = {numbers.data(), LOCKSTEP_FLOAT32, 2, {1, 3}, {kLarge, 1}};
  EXPECT_TRUE(at::equal(borrowed(row, "input"), at::zeros({1, 3})));
  const lockstep_array other = {
      numbers.data(), LOCKSTEP_FLOAT32, 2, {1, 3}, {std::numeric_limits<int64_t>::min(), 1}};
  EXPECT_TRUE(at::equal(borrowed(other, "input"), at::zeros({1, 3})));
}

TEST(CArrays, AreWrittenInTheirOwnOrderAndDtype) {
  std::array<double, 6> columns = {};
  const lockstep_array array = {columns.data(), LOCKSTEP_FLOAT64, 2, {2, 3}, {1, 2}};
  write(at::arange(6, at::kFloat).view({2, 3}), array, "the output");
  EXPECT_THAT(columns, ::testing::ElementsAre(0, 3, 1, 4, 2, 5));
  EXPECT_THAT(error_of([&] {
                write(at::zeros({3, 2}), array, "the output");
              }),
              HasSubstr("the array has the shape [2, 3], the result [3, 2]"));
  EXPECT_THAT(error_of([&] {
                write(at::zeros({2, 3}, at::kLong), array, "the output");
              }),
              HasSubstr("dtype"));
  const lockstep_array one_for_all = {columns.data(), LOCKSTEP_FLOAT64, 2, {2, 3}, {1, 0}};
  EXPECT_THAT(error_of([&] {
                write(at::zeros({2, 3}), one_for_all, "the output");
              }),
              HasSubstr("none of 0"));
  EXPECT_THAT(error_of([&] {
                write({at::zeros({2, 3}), at::zeros({1})}, &array, 1);
              }),
              HasSubstr("there are 1 output arrays, but the model returns 2"));
}

TEST(CLosses, AreLibTorchsByName) {
  const at::Tensor output = at::randn({4, 3}), target = at::randn({4, 3});
  EXPECT_TRUE(at::equal(loss_of(LossKind::mse, {output}, target), at::mse_loss(output, target)));
  EXPECT_TRUE(at::equal(loss_of(LossKind::l1, {output}, target), at::l1_loss(output, target)));
  const at::Tensor classes = at::randint(0, 3, {4}, at::kLong);
  EXPECT_TRUE(at::equal(loss_of(LossKind::cross_entropy, {output}, classes.to(at::kInt)),
                        at::cross_entropy_loss(output, classes)));
  const at::Tensor shares = at::softmax(target, 1);
  EXPECT_TRUE(at::equal(loss_of(LossKind::cross_entropy, {output}, shares),
                        at::cross_entropy_loss(output, shares)));
  EXPECT_TRUE(loss_of(LossKind::output, {output}, {}).is_same(output));
  const at::Tensor some = at::tensor({0, -100, 2, 1}, at::kInt);  // LibTorch leaves out -100
  EXPECT_TRUE(at::equal(loss_of(LossKind::cross_entropy, {output}, some),
                        at::cross_entropy_loss(output, some.to(at::kLong))));
}

TEST(CLosses, RefuseWhatDoesNotFit) {
  const at::Tensor output = at::randn({4, 1});
  const auto refusal = [&](LossKind kind, const std::vector<at::Tensor>& outputs,
                           const at::Tensor& target) {
    return error_of([&] { loss_of(kind, outputs, target); });
  };
  EXPECT_THAT(refusal(LossKind::mse, {output}, at::randn({4})),
              HasSubstr("the output has the shape [4, 1], the target [4]"));
  EXPECT_THAT(refusal(LossKind::mse, {output}, {}), HasSubstr("there is no target"));
  EXPECT_THAT(refusal(LossKind::mse, {output, output}, output), HasSubstr("returns 2 tensors"));
  EXPECT_THAT(refusal(LossKind::output, {output}, output), HasSubstr("there is a target"));
  EXPECT_THAT(refusal(LossKind::cross_entropy, {output}, at::zeros({4, 1}, at::kLong)),
              HasSubstr("class numbers"));
  EXPECT_THAT(refusal(LossKind::mse, {output}, at::randn({4, 1}, at::kDouble)),
              HasSubstr("the target has the dtype Double, the output Float"));
  EXPECT_THAT(refusal(LossKind::l1, {output}, at::ones({4, 1}, at::kInt)),
              HasSubstr("the target has the dtype Int, the output Float"));
  EXPECT_NO_THROW(loss_of(LossKind::mse, {output.to(at::kBFloat16)}, at::randn({4, 1})));
}

TEST(CLosses, NameWhatIsNoClass) {
  const auto refusal = [&](const at::Tensor& output, const at::Tensor& target) {
    return error_of([&] { loss_of(LossKind::cross_entropy, {output}, target); });
  };
  const at::Tensor rows = at::randn({4, 3});
  EXPECT_THAT(refusal(rows, at::tensor({1, 2, 3, 1}, at::kInt)),
              AllOf(HasSubstr("class number 3, but the output has 3 classes, 0 to 2"),
                    HasSubstr("counts classes from 1, subtract 1")));
  EXPECT_THAT(refusal(rows, at::tensor({0, -1, 2, -100}, at::kLong)), HasSubstr("class number -1"));
  EXPECT_THAT(refusal(at::randn({2, 3, 5}), at::full({2, 5}, 4, at::kLong)),
              HasSubstr("class number 4, but the output has 3"));
  EXPECT_THAT(refusal(rows, at::ones({4})), HasSubstr("class numbers are integers"));
  EXPECT_THAT(refusal(rows, at::ones({4, 3}, at::kDouble)), HasSubstr("dtype Double"));
}

}  // namespace
}  // namespace lockstep::c
