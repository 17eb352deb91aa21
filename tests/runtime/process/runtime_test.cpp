#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/runtime/process/impl/environment.h>
#include <lockstep/runtime/runtime.h>

#include <cstdlib>

#include "test_names.h"

namespace lockstep {

using namespace detail;

namespace {

/// Sets an environment variable while it lives.
class Variable {
 public:
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

std::string environment_error(const char* name, const char* value) {
  const Variable variable(name, value);
  try {
    with_environment({});
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Runtime, WithoutALauncherTheWorldHasSizeOne) {
  char program[] = "/somewhere/train";
  char* arguments[] = {program, nullptr};
  Runtime runtime(1, arguments, RuntimeOptions().seed(5));
  EXPECT_EQ(runtime.rank(), 0);
  EXPECT_EQ(runtime.size(), 1);
  EXPECT_EQ(runtime.local_rank(), 0);
  EXPECT_EQ(runtime.local_size(), 1);
  EXPECT_TRUE(runtime.is_main());
  EXPECT_TRUE(runtime.device().is_cpu());
  EXPECT_EQ(runtime.program(), "/somewhere/train");
  EXPECT_EQ(runtime.communicator().transport_name(), "solo");
  EXPECT_THAT(runtime.summary(), HasSubstr("ranks      1 (1 on this node), transport solo"));
  EXPECT_THAT(runtime.summary(), HasSubstr("seed       5"));
}

TEST(Runtime, ThreadsAreThoseAskedForOrTheEnvironments) {
  EXPECT_EQ(Runtime::solo(RuntimeOptions().threads(3)).threads(), 3);
  EXPECT_EQ(at::get_num_threads(), 3);
  const Variable variable("OMP_NUM_THREADS", "2");
  EXPECT_EQ(Runtime::solo().threads(), 2);
  EXPECT_EQ(at::get_num_threads(), 2);
  EXPECT_EQ(Runtime::solo(RuntimeOptions().threads(1)).threads(), 1);
}

TEST(Runtime, OneSeedMakesARunReproducible) {
  const auto draw = [](uint64_t seed) {
    const Runtime runtime = Runtime::solo(RuntimeOptions().seed(seed));
    return at::randn({8});
  };
  EXPECT_TRUE(at::equal(draw(1), draw(1)));
  EXPECT_FALSE(at::equal(draw(1), draw(2)));
}

TEST(Runtime, RankStreamsAreReproducibleAndNotTheSharedOne) {
  const Runtime runtime = Runtime::solo(RuntimeOptions().seed(9));
  const at::Tensor shared = at::randn({8});
  runtime.seed_ranks();
  const at::Tensor own = at::randn({8});
  runtime.seed_ranks();
  EXPECT_TRUE(at::equal(at::randn({8}), own));
  EXPECT_FALSE(at::equal(shared, own));
  runtime.seed_ranks(/*update=*/7);
  const at::Tensor later = at::randn({8});
  EXPECT_FALSE(at::equal(later, own));
  runtime.seed_ranks(7);
  EXPECT_TRUE(at::equal(at::randn({8}), later));
}

TEST(Runtime, EnvironmentOverridesOptions) {
  const Variable seed("LOCKSTEP_SEED", "18446744073709551615");
  const Variable timeout("LOCKSTEP_TIMEOUT", "7");
  const Variable check("LOCKSTEP_CHECK", "0");
  const RuntimeOptions options = with_environment(RuntimeOptions().seed(1));
  EXPECT_EQ(options.seed(), UINT64_MAX);
  EXPECT_EQ(options.timeout(), std::chrono::seconds(7));
  EXPECT_FALSE(options.check_collectives());
}

TEST(Runtime, UnsetOrEmptyVariablesChangeNothing) {
  const Variable empty("LOCKSTEP_SEED", "");
  const RuntimeOptions options = with_environment(RuntimeOptions().seed(4));
  EXPECT_EQ(options.seed(), 4U);
  EXPECT_EQ(options.timeout(), std::chrono::minutes(10));
  EXPECT_TRUE(options.check_collectives());
}

TEST(Runtime, MalformedVariablesAreQuoted) {
  EXPECT_THAT(environment_error("LOCKSTEP_SEED", "-1"), HasSubstr("LOCKSTEP_SEED=-1"));
  EXPECT_THAT(environment_error("LOCKSTEP_SEED", "12x"), HasSubstr("LOCKSTEP_SEED=12x"));
  EXPECT_THAT(environment_error("LOCKSTEP_SEED", "99999999999999999999"),
              HasSubstr("not a whole number"));
  EXPECT_THAT(environment_error("LOCKSTEP_TIMEOUT", "0"), HasSubstr("LOCKSTEP_TIMEOUT=0"));
  EXPECT_THAT(environment_error("LOCKSTEP_TIMEOUT", "ten"), HasSubstr("LOCKSTEP_TIMEOUT=ten"));
  EXPECT_THAT(environment_error("LOCKSTEP_CHECK", "2"), HasSubstr("from 0 to 1"));
}

TEST(Run, ReturnsTheExitCodeOfAnErrorAndSaysIt) {
  ::testing::internal::CaptureStderr();
  const int code = run(0, nullptr, [](Runtime&) { throw Error("file truncated", ExitCode::data); });
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("rank 0: file truncated"));
  EXPECT_EQ(code, static_cast<int>(ExitCode::data));
}

TEST(Run, PassesTheOptionsOn) {
  uint64_t seed = 0;
  char name[] = "program";
  char* arguments[] = {name, nullptr};
  EXPECT_EQ(
      run(1, arguments, RuntimeOptions().seed(7), [&](Runtime& runtime) { seed = runtime.seed(); }),
      0);
  EXPECT_EQ(seed, 7U);
}

TEST(Run, ReturnsZeroWhenTheBodyReturns) {
  EXPECT_EQ(run(0, nullptr, [](Runtime& runtime) { EXPECT_EQ(runtime.size(), 1); }), 0);
}

}  // namespace
}  // namespace lockstep
