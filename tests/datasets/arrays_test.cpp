#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <lockstep/inputs/npy_array.h>
#include <lockstep/inputs/safetensors_arrays.h>

#include <filesystem>

#include "damaged.h"
#include "error_of.h"
#include "runtime/data_error.h"
#include "test_names.h"
#include "written_by_python.h"

namespace lockstep {
namespace {

at::Tensor values() {
  return at::arange(24, at::kDouble).view({4, 3, 2});
}

/// A .npy file of version 1 with this dictionary and these bytes of data.
std::string refusal(const std::string& dictionary, size_t data_bytes) {
  const TemporaryFolder folder;
  std::vector<unsigned char> bytes = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0};
  bytes.push_back(static_cast<unsigned char>(dictionary.size() & 255U));
  bytes.push_back(static_cast<unsigned char>(dictionary.size() >> 8U));
  bytes.insert(bytes.end(), dictionary.begin(), dictionary.end());
  bytes.resize(bytes.size() + data_bytes);
  const std::string path = folder.write("a.npy", bytes);
  const std::string message = data_error([&] { NpyArray read(path); });
  EXPECT_THAT(message, HasSubstr(path + ", byte "));
  return message;
}

TEST(NpyArray, ReadsEachTypeOfNumPy) {
  const WrittenByPython folder("arrays");
  const std::pair<const char*, at::ScalarType> types[] = {{"bool", at::kBool},
                                                          {"int8", at::kChar},
                                                          {"int16", at::kShort},
                                                          {"int32", at::kInt},
                                                          {"int64", at::kLong},
                                                          {"uint8", at::kByte},
                                                          {"uint16", at::kUInt16},
                                                          {"uint32", at::kUInt32},
                                                          {"uint64", at::kUInt64},
                                                          {"float16", at::kHalf},
                                                          {"float32", at::kFloat},
                                                          {"float64", at::kDouble},
                                                          {"complex64", at::kComplexFloat},
                                                          {"complex128", at::kComplexDouble}};
  for (const auto& [name, dtype] : types) {
    const NpyArray read(folder.file(std::string(name) + ".npy"));
    EXPECT_EQ(read.tensor().scalar_type(), dtype) << name;
    const at::Tensor expected = dtype == at::kBool ? values().remainder(2) : values();
    const bool complex = c10::isComplexType(dtype);
    const at::Tensor found = complex ? at::real(read.tensor()) : read.tensor();
    EXPECT_TRUE(at::equal(found.to(at::kDouble), expected)) << name;
    EXPECT_EQ(read.size(), 4U);
    const at::Tensor row = read.get(2);
    EXPECT_TRUE(at::equal((complex ? at::real(row) : row).to(at::kDouble), expected[2])) << name;
  }
}

TEST(NpyArray, ReadsFortranOrderAndAllVersions) {
  const WrittenByPython folder("arrays");
  for (const char* name : {"fortran", "version2", "version3"}) {
    const NpyArray read(folder.file(std::string(name) + ".npy"));
    EXPECT_TRUE(at::equal(read.tensor(), values().to(at::kFloat))) << name;
    EXPECT_TRUE(read.get(1).is_contiguous());
    EXPECT_TRUE(at::equal(read.get(1), values()[1].to(at::kFloat))) << name;
  }
}

TEST(NpyArray, ReadsVectorsEmptyArraysAndDataThatIsNotAligned) {
  const WrittenByPython folder("arrays");
  EXPECT_EQ(NpyArray(folder.file("vector.npy")).get(3).item<float>(), 3.0F);
  EXPECT_EQ(NpyArray(folder.file("empty.npy")).size(), 0U);
  EXPECT_TRUE(at::equal(NpyArray(folder.file("unaligned.npy")).tensor(),
                        at::tensor({1.5, -2.0}, at::kDouble)));
}

TEST(NpyArray, NeverWritesToTheFileAndOutlivesIt) {
  at::Tensor whole;
  {
    const WrittenByPython folder("arrays");
    const NpyArray read(folder.file("vector.npy"));
    read.get(1).fill_(9);
    EXPECT_EQ(read.get(1).item<float>(), 1.0F);
    whole = read.tensor();
    whole[1].fill_(7);
    EXPECT_EQ(NpyArray(folder.file("vector.npy")).get(1).item<float>(), 1.0F);
  }
  EXPECT_EQ(whole.sum().item<float>(), 0 + 7 + 2 + 3 + 4);
}

TEST(NpyArray, RefusesTypesThatAreNotNumbersOfThisMachine) {
  const WrittenByPython folder("arrays");
  const auto message = [&](const char* name) {
    return data_error([&] { NpyArray read(folder.file(name)); });
  };
  EXPECT_THAT(message("big.npy"), HasSubstr("is big-endian; save array.astype('<f4')"));
  EXPECT_THAT(message("objects.npy"), HasSubstr("is Python objects"));
  EXPECT_THAT(message("fields.npy"), HasSubstr("a structured array"));
  EXPECT_THAT(message("scalar.npy"), HasSubstr("the array has no dimension"));
  EXPECT_THAT(message("none.npy"), HasSubstr("cannot be opened"));
}

TEST(NpyArray, RefusesAMalformedHeader) {
  const auto header = [](const std::string& shape) {
    return "{'descr': '<f4', 'fortran_order': False, 'shape': " + shape + ", }";
  };
  EXPECT_THAT(refusal(header("(2,)"), 7), HasSubstr("has 7 bytes of data, expected 8"));
  EXPECT_THAT(refusal(header("(2,)"), 9), HasSubstr("has 9 bytes of data, expected 8"));
  EXPECT_THAT(refusal(header("(4611686018427387904, 4)"), 0), HasSubstr("more than 2^63 bytes"));
  EXPECT_THAT(refusal(header("(0, 4611686018427387904, 4)"), 0), HasSubstr("more than 2^63 bytes"));
  EXPECT_THAT(refusal(header("(-2,)"), 8), HasSubstr("expected a dimension"));
  EXPECT_THAT(refusal(header("(99999999999999999999,)"), 8), HasSubstr("expected a dimension"));
  EXPECT_THAT(refusal(header("2"), 8), HasSubstr("expected ("));
  std::string many = "(";
  for (int i = 0; i < 65; ++i) {
    many += "1, ";
  }
  EXPECT_THAT(refusal(header(many + ")"), 4), HasSubstr("more than 64 dimensions"));
  EXPECT_THAT(refusal("{'descr': '<f4', 'shape': (2,)}", 8), HasSubstr("lacks descr"));
  EXPECT_THAT(refusal("{'descr': '<f4', 'order': 1}", 8), HasSubstr("unknown key 'order'"));
  EXPECT_THAT(refusal("{'descr': '<f4', 'fortran_order': 1}", 8), HasSubstr("True or False"));
  EXPECT_THAT(refusal("{'descr': '<f3', 'fortran_order': True}", 8), HasSubstr("'<f3'"));
  EXPECT_THAT(refusal("{'descr': '", 8), HasSubstr("does not end"));
  EXPECT_THAT(refusal(header("(2,)") + " 1", 8), HasSubstr("behind the dictionary"));
  EXPECT_THAT(refusal("nothing", 8), HasSubstr("malformed, expected {"));
}

TEST(NpyArray, SurvivesDamage) {
  const WrittenByPython folder("arrays");
  for (const char* name : {"float32.npy", "fortran.npy", "bool.npy", "version3.npy"}) {
    testing::expect_all_damage_is_refused(folder.file(name), 300, [](const std::string& path) {
      const NpyArray read(path);
      if (read.size() > 0) {
        read.get(read.size() - 1);
      }
    });
  }
}

TEST(SafetensorsArrays, ARowOfEachTensorIsASample) {
  const WrittenByPython folder("safetensors");
  const SafetensorsArrays data(folder.file("a.safetensors"), {"y", "x"});
  ASSERT_EQ(data.size(), 4U);
  const auto row = data.get(2);
  EXPECT_EQ(row[0].item<int64_t>(), 2);
  EXPECT_TRUE(at::equal(row[1], at::tensor({6.0F, 7.0F, 8.0F})));
  row[1].fill_(0);
  EXPECT_TRUE(at::equal(data.get(2)[1], at::tensor({6.0F, 7.0F, 8.0F})));
}

TEST(SafetensorsArrays, RefusesTensorsThatAreNoColumns) {
  const WrittenByPython folder("safetensors");
  const auto message = [&](const std::vector<std::string>& names) {
    return data_error([&] { SafetensorsArrays(folder.file("a.safetensors"), names); });
  };
  EXPECT_THAT(message({"z"}), HasSubstr("has no tensor \"z\""));
  EXPECT_THAT(message({"x", "short"}), HasSubstr("\"short\" has 3 rows, expected 4"));
  EXPECT_THAT(message({"scalar"}), HasSubstr("\"scalar\" has no dimension"));
  EXPECT_THAT(error_of([&] { SafetensorsArrays(folder.file("a.safetensors"), {}); }),
              HasSubstr("no tensor was named"));
  std::filesystem::resize_file(folder.file("a.safetensors"), 100);
  EXPECT_THAT(message({"x"}), HasSubstr("a.safetensors"));
}

}  // namespace
}  // namespace lockstep
