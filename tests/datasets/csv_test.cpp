#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/inputs/csv_file.h>
#include <zlib.h>

#include <fstream>
#include <iterator>
#include <limits>

#include "damaged.h"
#include "error_of.h"
#include "runtime/data_error.h"
#include "test_names.h"
#include "written_by_python.h"

namespace lockstep {
namespace {

CsvFile table(const std::string& text, const CsvOptions& options = {}) {
  const TemporaryFolder folder;
  return CsvFile(folder.write("t.csv", {text.begin(), text.end()}), options);
}

std::string refusal(const std::string& text, const CsvOptions& options = {}) {
  return data_error([&] { table(text, options); });
}

TEST(CsvFile, ReadsWhatPythonWrote) {
  const WrittenByPython folder("tables");
  for (const char* name : {"a.csv", "unix.csv", "all.csv", "a.tsv", "mac.csv"}) {
    const bool tabs = std::string(name) == "a.tsv";
    const CsvFile read(folder.file(name), CsvOptions().separator(tabs ? '\t' : ','));
    EXPECT_THAT(read.columns(), ElementsAre("name", "x", "y", "note")) << name;
    ASSERT_EQ(read.size(), 4U) << name;
    EXPECT_THAT(read.texts("name"), ElementsAre("first", "second, with comma", "third", ""));
    EXPECT_EQ(read.text(1, "note"), "says \"hello\"");
    EXPECT_EQ(read.text(2, "note"), "two\nlines\r\nthree");
    EXPECT_THAT(read.get(3), ElementsAre("", "-4", "0.1", ""));
    const double inf = std::numeric_limits<double>::infinity();
    EXPECT_TRUE(at::equal(
        read.numbers({"y", "x"}, at::kDouble),
        at::tensor({-2.5, 1.0, 1e3, 2.0, inf, 3.0, 0.1, -4.0}, at::kDouble).view({4, 2})));
    EXPECT_TRUE(at::equal(read.numbers({"x"}, at::kLong),
                          at::tensor({1, 2, 3, -4}, at::kLong).view({4, 1})));
    EXPECT_EQ(read.numbers({"y"}).scalar_type(), at::kFloat);
    EXPECT_EQ(read.numbers({"y"})[3].item<float>(), 0.1F);
  }
}

/// The rows as odd_tables() of write_samples.py writes them; empty if they are refused.
std::string rows_of(const std::string& path) {
  try {
    const CsvFile read(path, CsvOptions().header(false));
    std::string rows;
    for (size_t row = 0; row < read.size(); ++row) {
      rows += (row == 0 ? "" : "\x1e") + c10::Join("\x1f", read.get(row));
    }
    return rows;
  } catch (const Error&) {
    return "";
  }
}

TEST(CsvFile, ReadsTheRowsOfPythonOrRefuses) {
  const WrittenByPython folder("odd_tables");
  int taken = 0;
  for (int n = 0; n < 600; ++n) {
    const std::string name = folder.file(std::to_string(n));
    std::ifstream file(name + ".rows", std::ios::binary);
    const std::string expected{std::istreambuf_iterator<char>(file), {}};
    taken += expected.empty() ? 0 : 1;
    EXPECT_EQ(rows_of(name + ".csv"), expected) << name;
  }
  EXPECT_GT(taken, 100);
}

TEST(CsvFile, EndsLinesWithACarriageReturnAlone) {
  const CsvFile read = table("a,b\r1,2\r3,4\r");  // Excel's "CSV (Macintosh)"
  EXPECT_THAT(read.texts("b"), ElementsAre("2", "4"));
  EXPECT_THAT(refusal("a\r1\r\n2\n\"x\ry\r\nz\"\r3,4\r"), HasSubstr("line 7: 2 fields"));
}

TEST(CsvFile, HasNoByteOfZero) {
  using namespace std::string_literals;
  EXPECT_THAT(refusal("a,b\n1,\0\n"s), HasSubstr("byte 6: a byte of 0"));
  EXPECT_THAT(refusal("a\0,\0b\0\n\0"s), HasSubstr("UTF-16"));  // too short to be known
  EXPECT_THAT(refusal("\xff\xfe\0\0a\0\0\0"s), HasSubstr("UTF-32"));
}

TEST(CsvFile, FindsEachRowOfManyAndItsLine) {
  std::string text = "number,note\n";
  for (int i = 0; i < 1000; ++i) {
    text += std::to_string(i) + (i % 50 == 0 ? ",\"two\nlines\"\n" : ",\n");
  }
  const CsvFile read = table(text);
  ASSERT_EQ(read.size(), 1000U);
  for (size_t row = 0; row < 1000; ++row) {
    EXPECT_EQ(read.text(row, "number"), std::to_string(row));
  }
  EXPECT_THAT(data_error([&] { read.numbers({"note"}); }), HasSubstr("line 2, column 'note'"));
  EXPECT_THAT(data_error([&] { table(text + "x,1\n").numbers({"number"}); }),
              HasSubstr("line 1022, column 'number': 'x'"));
}

TEST(CsvFile, SkipsAByteOrderMarkAndEmptyLines) {
  const WrittenByPython folder("tables");
  const CsvFile read(folder.file("marked.csv"));
  EXPECT_THAT(read.columns(), ElementsAre("a", "b"));
  EXPECT_THAT(read.texts("a"), ElementsAre("1", "3"));
  EXPECT_THAT(read.texts("b"), ElementsAre("2", "4"));
}

TEST(CsvFile, CountsColumnsWithoutAHeader) {
  const CsvFile read = table("1,2\n3,4\n", CsvOptions().header(false));
  EXPECT_THAT(read.columns(), ElementsAre("0", "1"));
  EXPECT_TRUE(at::equal(read.numbers({"1", "0"}, at::kLong),
                        at::tensor({2, 1, 4, 3}, at::kLong).view({2, 2})));
}

TEST(CsvFile, TakesQuotesAsTextWhereAsked) {
  const CsvFile read = table("a\tb\nsay \"hi\t\"yes\n", CsvOptions().separator('\t').quotes(false));
  EXPECT_THAT(read.get(0), ElementsAre("say \"hi", "\"yes"));
  EXPECT_THAT(table("a,b\nsay \"hi\",c\n").get(0), ElementsAre("say \"hi\"", "c"));
}

TEST(CsvFile, KeepsEmptyFieldsAtTheEndOfALine) {
  EXPECT_THAT(table("a,b,c\n1,,\n,,3").get(0), ElementsAre("1", "", ""));
  EXPECT_THAT(table("a,b,c\n1,,\n,,3").get(1), ElementsAre("", "", "3"));
  EXPECT_THAT(table("a,b\n1,").get(0), ElementsAre("1", ""));
}

TEST(CsvFile, ReadsGzip) {
  const TemporaryFolder folder;
  gzFile file = gzopen(folder.file("t.csv.gz").c_str(), "wb");
  ASSERT_EQ(gzwrite(file, "a\n7\n", 4), 4);
  ASSERT_EQ(gzclose(file), Z_OK);
  EXPECT_EQ(CsvFile(folder.file("t.csv.gz")).text(0, "a"), "7");
}

TEST(CsvFile, RefusesWhatIsNoTableAndNamesTheLine) {
  EXPECT_THAT(refusal("a,b\n\"x\ny\",2\n1\n"),
              HasSubstr("t.csv, line 4: 1 fields, expected 2 as in the first line"));
  EXPECT_THAT(refusal("a,b\n1,2,3\n"), HasSubstr("line 2: 3 fields, expected 2"));
  EXPECT_THAT(refusal("a,b\n1,\"2\n3,4\n"), HasSubstr("line 2: a quote does not end"));
  EXPECT_THAT(refusal("a\n\"\"\"\n"), HasSubstr("line 2: a quote does not end"));
  EXPECT_THAT(refusal("a,b\n\"1\"2,3\n"), HasSubstr("line 2: text after the end of a quote"));
  EXPECT_THAT(refusal("a,b,a\n"), HasSubstr("line 1: two columns have the name 'a'"));
  EXPECT_THAT(refusal("\n\n"), HasSubstr("the file has no line"));
  EXPECT_THAT(refusal(""), HasSubstr("the file is empty"));
  EXPECT_THAT(data_error([] { CsvFile("/no/such/file"); }), HasSubstr("cannot be opened"));
  EXPECT_THAT(error_of([] { table("a\n", CsvOptions().separator('"')); }), HasSubstr("separator"));
}

TEST(CsvFile, RefusesWhatIsNoNumberAndNamesTheField) {
  const CsvFile read = table("a,b\n1,2.5\n,x\n9223372036854775808,1e999\n");
  EXPECT_THAT(data_error([&] { read.numbers({"a"}); }),
              HasSubstr("line 3, column 'a': '', expected a number of Float"));
  EXPECT_THAT(data_error([&] { read.numbers({"b"}); }), HasSubstr("line 3, column 'b': 'x'"));
  EXPECT_THAT(data_error([&] { read.numbers({"b"}, at::kLong); }),
              HasSubstr("line 2, column 'b': '2.5', expected a number of Long"));
  EXPECT_THAT(data_error([&] { read.numbers({"c"}); }),
              HasSubstr("has no column 'c', its columns are a, b"));
  EXPECT_THAT(data_error([&] { table("a\n9223372036854775808\n").numbers({"a"}, at::kLong); }),
              HasSubstr("line 2"));
  EXPECT_THAT(data_error([&] { table("a\n1e999\n").numbers({"a"}); }), HasSubstr("line 2"));
  EXPECT_THAT(data_error([&] { table("a\n+-1\n").numbers({"a"}); }), HasSubstr("line 2"));
  EXPECT_THAT(error_of([&] { read.numbers({"a"}, at::kHalf); }), HasSubstr("to Half"));
  EXPECT_THAT(error_of([&] { read.get(3); }), HasSubstr("has no row 3, it has 3"));
  EXPECT_EQ(table("a\n+1.5\n").numbers({"a"}).item<float>(), 1.5F);
}

TEST(CsvFile, SurvivesDamage) {
  const WrittenByPython folder("tables");
  testing::expect_all_damage_is_refused(folder.file("all.csv"), 400, [](const std::string& path) {
    const CsvFile read(path);
    for (size_t row = 0; row < read.size(); ++row) {
      read.get(row);
    }
    read.numbers({read.columns().back()});
  });
}

}  // namespace
}  // namespace lockstep
