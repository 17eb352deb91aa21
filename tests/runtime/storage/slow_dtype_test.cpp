// What a Trainer says of a dtype that is slow on this processor.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/runtime/storage/impl/slow_dtype_notice.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include "error_of.h"
#include "runtime/trainer_runs.h"
#include "test_names.h"

namespace lockstep {

using namespace detail;

namespace {

/// The process's notice, with made-up times, and what it printed.
struct MadeUpTimes {
  explicit MadeUpTimes(double slowdown) {
    SlowDtypeNotice::of_process().replace(
        [this, slowdown](c10::ScalarType) {
          ++measured;
          return amp::ComputeSpeed{1e-3, 1e-3, slowdown * 1e-3, 1e-3};
        },
        out);
  }
  ~MadeUpTimes() {
    SlowDtypeNotice::of_process().replace(
        [](c10::ScalarType) {
          return amp::ComputeSpeed{1, 1, 1, 1};
        },
        std::cerr);
  }
  void make_trainer(const Precision& precision) const {
    Trainer(runtime(), std::make_shared<Mlp>(), AdamW(1e-2), TrainerOptions().precision(precision));
  }
  int64_t lines() const {
    const std::string text = out.str();
    return std::count(text.begin(), text.end(), '\n');
  }

  int measured = 0;
  std::ostringstream out;
};

TEST(SlowDtype, ASlowDtypeIsSaidOnceByRankZero) {
  MadeUpTimes times(70);
  times.make_trainer(Precision::O0().wire(at::kHalf));
  EXPECT_EQ(times.measured, 0) << "O0 computes in fp32";
  for (const Precision& precision : {Precision::O1(), Precision::O2(), Precision::O3()}) {
    times.make_trainer(precision);
  }
  EXPECT_EQ(times.measured, runtime().is_main() ? 1 : 0);
  EXPECT_EQ(times.lines(), runtime().is_main() ? 1 : 0) << times.out.str();
  if (runtime().is_main()) {
    EXPECT_THAT(times.out.str(),
                AllOf(HasSubstr("lockstep: fp16 is slow on this processor"),
                      HasSubstr("convolution 70.0 times as long"), HasSubstr("wire(torch::kHalf)"),
                      HasSubstr("LOCKSTEP_PROBE_DTYPE=0 silences this")));
  }
  times.make_trainer(Precision::O2(at::kBFloat16));
  EXPECT_EQ(times.lines(), runtime().is_main() ? 2 : 0) << "another dtype";
}

TEST(SlowDtype, AFastDtypeIsNotSpokenOf) {
  MadeUpTimes times(4.9);
  times.make_trainer(Precision::O2());
  EXPECT_EQ(times.out.str(), "");
}

TEST(SlowDtype, TheProbeOfTheDtypeCanBeSwitchedOff) {
  MadeUpTimes times(70);
  setenv("LOCKSTEP_PROBE_DTYPE", "0", 1);
  times.make_trainer(Precision::O2());
  setenv("LOCKSTEP_PROBE_DTYPE", "no", 1);
  EXPECT_THAT(error_of([&] { times.make_trainer(Precision::O2()); }),
              HasSubstr("LOCKSTEP_PROBE_DTYPE=no is not a whole number from 0 to 1"));
  unsetenv("LOCKSTEP_PROBE_DTYPE");
  EXPECT_EQ(times.measured, 0);
  EXPECT_EQ(times.out.str(), "");
}

}  // namespace
}  // namespace lockstep
