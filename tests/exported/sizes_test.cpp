// Python's arithmetic on sizes, and the relations that torch.export writes with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/inputs/exported/archive/json_values.h>
#include <lockstep/inputs/exported/graph/arithmetic.h>
#include <lockstep/inputs/exported/graph/linear_size.h>
#include <lockstep/inputs/exported/graph/relation.h>
#include <torch/torch.h>

#include <fstream>
#include <string>

#include "test_names.h"

namespace lockstep::exported {
namespace {

TEST(ExportedSizes, EveryFunctionOfTheExportersListIsKnown) {
  std::ifstream names(std::string(LOCKSTEP_EXPORTED_MODELS) + "/size_arithmetic.txt");
  int count = 0;
  for (std::string name; std::getline(names, name); ++count) {
    size_t operands = 0;
    EXPECT_NE(arithmetic_of(name, operands), nullptr) << name;
  }
  EXPECT_GT(count, 20);
}

c10::IValue result_of(const std::string& function, std::vector<c10::IValue> stack) {
  size_t operands = 0;
  const Arithmetic arithmetic = arithmetic_of(function, operands);
  EXPECT_EQ(operands, stack.size());
  arithmetic(stack);
  EXPECT_EQ(stack.size(), 1);
  return stack[0];
}

TEST(ExportedSizes, ShiftsAndRoundingAreThoseOfPython) {
  EXPECT_EQ(result_of("_operator.lshift", {3, 4}).toInt(), 48);
  EXPECT_EQ(result_of("_operator.lshift", {-3, 2}).toInt(), -12);
  EXPECT_EQ(result_of("_operator.lshift", {0, 100}).toInt(), 0);
  EXPECT_EQ(result_of("_operator.rshift", {-3, 1}).toInt(), -2);
  EXPECT_EQ(result_of("_operator.rshift", {7, 100}).toInt(), 0);
  EXPECT_EQ(result_of("_operator.rshift", {-7, 100}).toInt(), -1);
  EXPECT_THROW(result_of("_operator.lshift", {1, 63}), Error);
  EXPECT_THROW(result_of("_operator.lshift", {1, -1}), Error);
  EXPECT_EQ(result_of("math.floor", {-0.5}).toInt(), -1);
  EXPECT_EQ(result_of("math.ceil", {-0.5}).toInt(), 0);
  EXPECT_EQ(result_of("math.trunc", {-1.5}).toInt(), -1);
}

bool holds(const std::string& relation, int64_t x, int64_t y) {
  const Relation read(relation, {{"['x']", 0}, {"['d']['y'][0]", 1}, {"['n']", 2}});
  return read.holds({at::zeros({x, 2}), at::zeros({y}), c10::IValue(x)});
}

TEST(ExportedSizes, RelationsHoldWhereTheyHoldInPython) {
  EXPECT_TRUE(holds("L['x'].size()[0] == (2*L['d']['y'][0].size()[0])", 8, 4));
  EXPECT_FALSE(holds("L['x'].size()[0] == (2*L['d']['y'][0].size()[0])", 8, 3));
  EXPECT_TRUE(holds("(L['x'].size()[0] // 2) != 1 and L['n'] % 4 == 0", 8, 1));
  EXPECT_FALSE(holds("(L['x'].size()[0] // 2) != 1 and L['n'] % 4 == 0", 6, 1));
  EXPECT_TRUE(holds("not L['n'] < 3 or False", 3, 1));
  EXPECT_TRUE(holds("-L['n']**2 == -9", 3, 1));
  EXPECT_TRUE(holds("2**3**1 - 2 - 1 == 5", 1, 1));
  EXPECT_TRUE(holds("2**-1 == 0.5", 1, 1));
  EXPECT_TRUE(holds("1e-05 < (L['x'].size()[0] / 100)", 8, 1));
  EXPECT_TRUE(holds("math.trunc(0.5*torch.sym_float(L['n'])) == 4", 9, 1));
  EXPECT_TRUE(holds("max(1, L['n'], 3) == 8 and min(L['n'], 3) == 3", 8, 1));
  EXPECT_TRUE(holds("L['x'].stride()[0] == 2 and L['x'].storage_offset() == 0", 3, 1));
  EXPECT_TRUE(holds("L['n'] < math.inf and abs(L['n'] - 9) == 1", 8, 1));
  EXPECT_THROW(holds("1 // (L['n'] - 8) == 0", 8, 1), Error);
  EXPECT_THROW(holds("L['other'] == 1", 8, 1), Malformed);
  EXPECT_EQ(Relation("L['x'].size()[0] <= 4", {{"['x']", 0}}).text(), "x.size()[0] <= 4");
}

TEST(ExportedSizes, DerivedDimensionsAreRead) {
  const auto size = LinearSize::parse(
      "Add(Mul(Integer(2), Symbol('s13', positive=True, integer=True)), Integer(-1))");
  ASSERT_TRUE(size.has_value());
  EXPECT_EQ(size->text(), "2*s13 - 1");
  EXPECT_EQ(size->at(5), 9);
  EXPECT_EQ(LinearSize::parse("Symbol('s0', integer=True)")->text(), "s0");
  for (const char* other :
       {"Mul(Symbol('a'), Symbol('b'))", "Add(Symbol('a'), Symbol('b'))",
        "FloorDiv(Symbol('a'), Integer(2))", "Integer(3)", "", "(", "Mul(", ")"}) {
    EXPECT_FALSE(LinearSize::parse(other).has_value()) << other;
  }
}

}  // namespace
}  // namespace lockstep::exported
