#include "seeds.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>

#include <mutex>

namespace lockstep::testing {
namespace {

using ::testing::EmptyTestEventListener;
using ::testing::TestInfo;
using ::testing::UnitTest;

constexpr uint64_t kMostRanks = 1024;

class Seeder : public EmptyTestEventListener {
 public:
  explicit Seeder(int rank) : rank_(static_cast<uint64_t>(rank)) {}

 private:
  void OnTestIterationStart(const UnitTest& /*program*/, int iteration) override {
    iteration_ = static_cast<uint64_t>(iteration);
  }

  void OnTestStart(const TestInfo& /*test*/) override {
    at::Generator generator = at::detail::getDefaultCPUGenerator();
    const std::lock_guard<std::mutex> lock(generator.mutex());
    generator.set_current_seed(1 + iteration_ * kMostRanks + rank_);
  }

  const uint64_t rank_;
  uint64_t iteration_ = 0;
};

}  // namespace

void seed_every_test(int rank) {
  UnitTest::GetInstance()->listeners().Append(new Seeder(rank));
}

}  // namespace lockstep::testing
