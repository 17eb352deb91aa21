// The limits of every reader of JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/impl/bounded_json.h>

#include <nlohmann/json.hpp>
#include <string>

#include "test_names.h"

namespace lockstep {
namespace {

std::string complaint(const std::string& text, const detail::JsonLimits& limits = {}) {
  try {
    detail::bounded_json(text, limits);
  } catch (const detail::BadJson& fault) {
    return fault.what();
  }
  return "";
}

TEST(BoundedJson, ReadsWhatIsWithinItsLimits) {
  const std::string text = R"({"a":[1,-2,0.5,true,null,"\u00e9"],"b":{"c":[]}})";
  EXPECT_EQ(detail::bounded_json(text), nlohmann::json::parse(text));
  EXPECT_EQ(complaint(std::string(8, '[') + std::string(8, ']')), "");
}

TEST(BoundedJson, RefusesTheFirstThatIsBeyondThem) {
  detail::JsonLimits limits;
  limits.values = 3;
  limits.key_bytes = 2;
  EXPECT_EQ(complaint("[1,2,3]", limits), "more than 3 values");
  EXPECT_EQ(complaint("[[],[],[]]", limits), "more than 3 values");
  EXPECT_THAT(complaint(R"({"abc":1})", limits), HasSubstr("a key of 3 bytes; at most 2"));
  EXPECT_EQ(complaint(std::string(1'000'000, '[')), "nested deeper than 8");
  EXPECT_EQ(complaint(R"({"a":1,"a":1})"), "duplicate key \"a\"");
}

TEST(BoundedJson, NamesTheByteThatIsNoJson) {
  for (const char* text : {"", "{", "[1,]", "1 2", "[1e999]", "\"\xff\""}) {
    try {
      detail::bounded_json(text);
      ADD_FAILURE() << text;
    } catch (const detail::BadJson& fault) {
      EXPECT_GT(fault.position(), 0U) << text;
      EXPECT_THAT(fault.what(), HasSubstr("not JSON"));
    }
  }
}

}  // namespace
}  // namespace lockstep
