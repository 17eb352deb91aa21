// The planner: against revolve's closed form, against tables of rotor, and against all plans of
// short chains.
#include <gmock/gmock.h>
#include <lockstep/checkpointing/activation/plan_checkpoints.h>
#include <lockstep/collectives/exceptions.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <random>

#include "test_names.h"

namespace lockstep::testing {
namespace {

using ::testing::ThrowsMessage;
using Pieces = std::vector<CheckpointPlan::Piece>;

ChainCosts equal_stages(int64_t count, int64_t output, int64_t saved, double forward,
                        double backward) {
  StageCosts stage;
  stage.name = "stage";
  stage.forward_seconds = forward;
  stage.backward_seconds = backward;
  stage.output_bytes = output;
  stage.saved_bytes = saved;
  return ChainCosts(count, stage);
}

double seconds_of(const ChainCosts& costs, int64_t budget) {
  const PlanCosts predicted = plan_checkpoints(costs, budget, budget).predict(costs);
  EXPECT_LE(predicted.peak_bytes, budget);
  return predicted.seconds;
}

int64_t binomial(int64_t n, int64_t k) {
  int64_t result = 1;
  for (int64_t i = 1; i <= k; ++i) {
    result = result * (n - k + i) / i;
  }
  return k > n ? 0 : result;
}

// Griewank and Walther: the least forward steps that reverse `steps` with `slots` checkpoints.
int64_t revolve(int64_t steps, int64_t slots) {
  int64_t r = 0;
  while (binomial(slots + r, slots) < steps) {
    ++r;
  }
  return r * steps - binomial(slots + r, slots + 1);
}

// Stages so large to keep that only one fits at a time: then all that is left to plan is revolve's
// placement of inputs.
TEST(PlanCheckpoints, EqualsRevolvesClosedForm) {
  EXPECT_EQ(revolve(10, 3), 15);
  EXPECT_EQ(revolve(56, 3), 210);
  for (int64_t steps : {1, 2, 3, 10, 16, 20, 50, 56, 100}) {
    for (int64_t slots : {1, 2, 3, 4, 5, 10}) {
      const int64_t kept = 200;
      const double seconds = seconds_of(equal_stages(steps, 1, kept, 1, 0), slots + 1 + kept);
      EXPECT_EQ(seconds, static_cast<double>(revolve(steps, slots) + steps))
          << steps << " steps, " << slots << " slots";
    }
  }
}

TEST(PlanCheckpoints, EqualsTheTableOfRotor) {
  const ChainCosts costs = equal_stages(12, 1, 4, 1, 2);
  const std::map<int64_t, double> expected = {
      {6, 102}, {7, 64},  {8, 57},  {9, 53},  {10, 51}, {11, 49}, {12, 47}, {14, 46}, {16, 45},
      {19, 44}, {23, 43}, {26, 42}, {30, 41}, {34, 40}, {38, 39}, {42, 38}, {46, 37}, {49, 36}};
  EXPECT_EQ(least_activation_bytes(costs), 6);
  for (int64_t budget = 6; budget < 60; ++budget) {
    EXPECT_EQ(seconds_of(costs, budget), std::prev(expected.upper_bound(budget))->second) << budget;
  }
}

ChainCosts random_chain(std::mt19937& random) {
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  ChainCosts costs(pick(1, 7));
  for (StageCosts& stage : costs) {
    stage.forward_seconds = static_cast<double>(pick(1, 20));
    stage.backward_seconds = static_cast<double>(pick(1, 40));
    stage.output_bytes = pick(1, 12);
    stage.keeps_output = pick(0, 1) == 1;
    stage.keeps_input = pick(0, 1) == 1;
    stage.saved_bytes = (stage.keeps_output ? stage.output_bytes : 0) + pick(0, 20);
    stage.forward_temporary_bytes = pick(0, 6);
    stage.passing_temporary_bytes = pick(0, 6);
    stage.backward_temporary_bytes = pick(0, 6);
  }
  return costs;
}

// All ways to divide the stages first..last into stages and regions, nested.
std::vector<Pieces> all_plans(int64_t first, int64_t last) {
  if (first > last) {
    return {{}};
  }
  std::vector<Pieces> plans;
  const auto add = [&](const CheckpointPlan::Piece& piece, int64_t next) {
    for (const Pieces& rest : all_plans(next, last)) {
      plans.push_back({piece});
      plans.back().insert(plans.back().end(), rest.begin(), rest.end());
    }
  };
  add({first, {}}, first + 1);
  for (int64_t end = first; end < last; ++end) {
    for (const Pieces& inside : all_plans(first, end)) {
      add({-1, inside}, end + 1);
    }
  }
  return plans;
}

// The steps of a run, one after the other, with all tensors that are alive: the model of
// segment_memory.h, told again as a simulation. Tensor i is what stage i - 1 returned.
class Simulation {
 public:
  explicit Simulation(const ChainCosts& costs) : costs_(costs), holders_(costs.size() + 1) {}

  PlanCosts run(const Pieces& pieces) {
    segment(pieces, 0, /*has_gradient=*/false);
    EXPECT_EQ(alive(), 0);
    return total_;
  }

 private:
  static int64_t stages_of(const Pieces& pieces) {
    int64_t count = 0;
    for (const auto& piece : pieces) {
      count += piece.is_region() ? stages_of(piece.pieces) : 1;
    }
    return count;
  }

  int64_t alive() const {
    int64_t bytes = inner_;
    for (std::size_t i = 1; i < holders_.size(); ++i) {
      bytes += holders_[i] > 0 ? costs_[i - 1].output_bytes : 0;
    }
    return bytes;
  }

  void need(int64_t bytes) { total_.peak_bytes = std::max(total_.peak_bytes, alive() + bytes); }

  // What a stage saves besides its input and output.
  int64_t inner(int64_t stage) const {
    const StageCosts& c = costs_[stage];
    return c.saved_bytes - (c.keeps_output ? c.output_bytes : 0);
  }

  void forward_kept(int64_t stage, int64_t gradient) {
    const StageCosts& c = costs_[stage];
    total_.seconds += c.forward_seconds;
    inner_ += inner(stage);
    holders_[stage] += c.keeps_input ? 1 : 0;
    holders_[stage + 1] += c.keeps_output ? 1 : 0;
    need(gradient + c.forward_temporary_bytes);
  }

  void backward_kept(int64_t stage) {
    const StageCosts& c = costs_[stage];
    total_.seconds += c.backward_seconds;
    need(c.output_bytes + c.backward_temporary_bytes);
    inner_ -= inner(stage);
    holders_[stage] -= c.keeps_input ? 1 : 0;
    holders_[stage + 1] -= c.keeps_output ? 1 : 0;
  }

  void forward_passing(int64_t begin, int64_t end, int64_t gradient) {
    ++holders_[begin];
    for (int64_t stage = begin; stage < end; ++stage) {
      const StageCosts& c = costs_[stage];
      total_.seconds += c.forward_seconds;
      need(gradient + c.output_bytes + c.passing_temporary_bytes);
      pass(stage, begin);
    }
  }

  // The loop's variable moves on from a stage's input to its output.
  void pass(int64_t stage, int64_t segment_begin) {
    holders_[stage] -= stage == segment_begin ? 0 : 1;
    ++holders_[stage + 1];
  }

  // Forward and backward of a segment whose input is held by others.
  void segment(const Pieces& pieces, int64_t first, bool has_gradient) {
    const int64_t last = first + stages_of(pieces) - 1;
    const int64_t gradient = has_gradient ? costs_[last].output_bytes : 0;
    std::vector<int64_t> begins;
    int64_t stage = first;
    for (const auto& piece : pieces) {
      begins.push_back(stage);
      if (piece.is_region()) {
        const int64_t end = stage + stages_of(piece.pieces);
        const int64_t begin = stage;
        forward_passing(begin, end, gradient);
        holders_[begin] -= begin == first ? 0 : 1;  // the loop's own, in favour of the region's
        stage = end;
      } else {
        forward_kept(stage, gradient);
        pass(stage, first);
        ++stage;
      }
    }
    --holders_[last + 1];
    for (std::size_t i = pieces.size(); i-- > 0;) {
      if (pieces[i].is_region()) {
        segment(pieces[i].pieces, begins[i], /*has_gradient=*/true);
        --holders_[begins[i]];
      } else {
        backward_kept(begins[i]);
      }
    }
  }

  const ChainCosts& costs_;
  std::vector<int> holders_;
  int64_t inner_ = 0;
  PlanCosts total_;
};

TEST(PlanCheckpoints, NoPlanOfAShortChainIsBetter) {
  std::mt19937 random(2024);
  for (int trial = 0; trial < 200; ++trial) {
    const ChainCosts costs = random_chain(random);
    std::vector<PlanCosts> all;
    for (const Pieces& pieces : all_plans(0, static_cast<int64_t>(costs.size()) - 1)) {
      all.push_back(Simulation(costs).run(pieces));
      const PlanCosts predicted = CheckpointPlan(pieces).predict(costs);
      ASSERT_EQ(predicted.peak_bytes, all.back().peak_bytes) << CheckpointPlan(pieces).text();
      ASSERT_EQ(predicted.seconds, all.back().seconds) << CheckpointPlan(pieces).text();
    }
    const auto less_memory = [](const PlanCosts& a, const PlanCosts& b) {
      return a.peak_bytes < b.peak_bytes;
    };
    const int64_t least = std::min_element(all.begin(), all.end(), less_memory)->peak_bytes;
    EXPECT_EQ(least_activation_bytes(costs), least);
    for (int64_t budget = least; budget < least + 40; budget += 3) {
      double best = std::numeric_limits<double>::infinity();
      for (const PlanCosts& plan : all) {
        best = plan.peak_bytes <= budget ? std::min(best, plan.seconds) : best;
      }
      EXPECT_EQ(seconds_of(costs, budget), best) << "trial " << trial << ", budget " << budget;
    }
  }
}

TEST(PlanCheckpoints, NoPlanOfAShortChainThatIsFollowedIsBetter) {
  std::mt19937 random(2025);
  for (int trial = 0; trial < 100; ++trial) {
    ChainCosts costs = random_chain(random);
    const auto stages = static_cast<int64_t>(costs.size());
    const int64_t following = std::uniform_int_distribution<int64_t>(0, 60)(random);
    ChainCosts followed = costs;
    followed.emplace_back();
    followed.back().keeps_output = false;
    followed.back().forward_temporary_bytes = followed.back().backward_temporary_bytes = following;
    std::vector<PlanCosts> all;
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const Pieces& pieces : all_plans(0, stages)) {
      if (!pieces.back().is_region()) {  // what follows is not computed again
        all.push_back(Simulation(followed).run(pieces));
        least = std::min(least, all.back().peak_bytes);
      }
    }
    EXPECT_EQ(plan_followed_checkpoints(costs, following, 0).peak_bytes, least);
    for (int64_t budget = least; budget < least + 40; budget += 3) {
      double best = std::numeric_limits<double>::infinity();
      for (const PlanCosts& plan : all) {
        best = plan.peak_bytes <= budget ? std::min(best, plan.seconds) : best;
      }
      const FollowedPlan ours = plan_followed_checkpoints(costs, following, budget, budget);
      EXPECT_EQ(ours.plan.predict(costs).seconds, best) << "trial " << trial << ", " << budget;
      EXPECT_LE(ours.peak_bytes, budget);
    }
  }
}

TEST(PlanCheckpoints, BudgetThatIsTooSmallNamesTheLeastThatWorks) {
  const ChainCosts costs = equal_stages(12, 1000, 4000, 1, 2);
  EXPECT_THAT([&] { plan_checkpoints(costs, 5999); },
              ThrowsMessage<Error>(AllOf(HasSubstr("the budget is 5999 bytes"),
                                         HasSubstr("need at least 6000 bytes"))));
  EXPECT_EQ(plan_checkpoints(costs, 6000).predict(costs).peak_bytes, 6000);
}

// Each size is rounded up to a slot, by which a stage's 101 bytes would take 120 of the budget.
TEST(PlanCheckpoints, RoundingToSlotsLeavesLittleOfTheBudget) {
  ChainCosts costs = equal_stages(40, 41, 101, 1, 2);
  for (std::size_t i = 0; i < costs.size(); ++i) {
    costs[i].output_bytes += static_cast<int64_t>(i * 7 % 5);
    costs[i].saved_bytes += static_cast<int64_t>(i * 5 % 11);
  }
  const int64_t plain = CheckpointPlan::uniform(40, 1).predict(costs).peak_bytes;
  for (const int64_t percent : {20, 35, 50, 75}) {
    const int64_t budget = plain * percent / 100;
    const int64_t slots = budget / 20;
    const PlanCosts predicted = plan_checkpoints(costs, budget, slots).predict(costs);
    EXPECT_LE(predicted.peak_bytes, budget) << percent;
    EXPECT_GE(static_cast<double>(predicted.peak_bytes), 0.93 * static_cast<double>(budget))
        << percent;
  }
}

}  // namespace
}  // namespace lockstep::testing
