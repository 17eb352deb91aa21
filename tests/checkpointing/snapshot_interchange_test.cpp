#include "checkpointing/snapshot_python.h"
#include "runtime/temporary_folder.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <lockstep/checkpointing/snapshot/impl/safetensors_file.h>
#include <lockstep/checkpointing/snapshot/safetensors_writer.h>

namespace lockstep::snapshot {
namespace {

using ::lockstep::testing::expect_python;
using ::lockstep::testing::TemporaryFolder;

TEST(SnapshotInterchange, PythonReadsOurFile) {
  const TemporaryFolder folder;
  const at::Tensor numbers = at::arange(-3, 3, at::kFloat).view({2, 3});
  save_safetensors(folder.file("ours"), {{"f32", numbers},
                                         {"bf16", numbers.to(at::kBFloat16)},
                                         {"f16", numbers.to(at::kHalf)},
                                         {"f8", numbers.to(at::kFloat8_e4m3fn)},
                                         {"i64", numbers.to(at::kLong)},
                                         {"bool", numbers > 0},
                                         {"odd", at::ones({3}, at::kByte)},
                                         {"scalar", at::scalar_tensor(2.5)},
                                         {"empty", at::empty({0, 2})},
                                         {"gewicht.größe.重み", at::ones({2})}});
  expect_python(folder.path(), R"(
import safetensors, torch
from safetensors.torch import load_file
read = load_file("ours")
numbers = torch.arange(-3, 3, dtype=torch.float32).view(2, 3)
assert set(read) == {"f32", "bf16", "f16", "f8", "i64", "bool", "odd", "scalar", "empty", "gewicht.größe.重み"}
for name, dtype in dict(f32=torch.float32, bf16=torch.bfloat16, f16=torch.float16,
                        f8=torch.float8_e4m3fn, i64=torch.int64).items():
    assert read[name].dtype == dtype and read[name].shape == (2, 3), name
    assert torch.equal(read[name].float(), numbers), name
assert torch.equal(read["bool"], numbers > 0)
assert torch.equal(read["odd"], torch.ones(3, dtype=torch.uint8))
assert read["scalar"].shape == () and read["scalar"].item() == 2.5
assert read["empty"].shape == (0, 2)
with safetensors.safe_open("ours", framework="pt") as file:
    assert file.metadata() == {"format": "pt"}
)");
}

TEST(SnapshotInterchange, WeReadPythonsFile) {
  const TemporaryFolder folder;
  expect_python(folder.path(), R"(
import json, torch
from safetensors.torch import save_file
numbers = torch.arange(-3, 3, dtype=torch.float32).view(2, 3)
save_file({"f32": numbers, "bf16": numbers.bfloat16(), "f8": numbers.to(torch.float8_e5m2),
           "e8m0": torch.tensor([1., 2., 4.]).to(torch.float8_e8m0fnu),
           "u16": torch.tensor([65535], dtype=torch.uint16),
           "c64": torch.tensor([1 + 2j], dtype=torch.complex64),
           "scalar": torch.tensor(2.5), "empty": torch.empty(0, 2),
           "gewicht.größe.重み": torch.ones(2)}, "theirs", metadata={"written by": "python"})
# the same without the padding that some writers leave out
data = open("theirs", "rb").read()
end = 8 + int.from_bytes(data[:8], "little")
header = json.dumps(json.loads(data[8:end]), ensure_ascii=True).encode()
header += b" " * (1 - len(header) % 2)
open("unpadded", "wb").write(len(header).to_bytes(8, "little") + header + data[end:])
save_file({}, "none")
)");
  const at::Tensor numbers = at::arange(-3, 3, at::kFloat).view({2, 3});
  for (const char* name : {"theirs", "unpadded"}) {
    const SafetensorsFile file(folder.file(name));
    EXPECT_EQ(file.header().tensors.size(), 9U);
    EXPECT_EQ(file.header().metadata.at("written by"), "python");
    EXPECT_TRUE(at::equal(file.tensor("f32"), numbers));
    EXPECT_EQ(file.tensor("bf16").scalar_type(), at::kBFloat16);
    EXPECT_TRUE(at::equal(file.tensor("bf16").to(at::kFloat), numbers));
    EXPECT_TRUE(at::equal(file.tensor("f8").to(at::kFloat), numbers));
    EXPECT_EQ(file.tensor("e8m0").scalar_type(), at::kFloat8_e8m0fnu);
    EXPECT_EQ(file.tensor("u16").to(at::kInt).item<int>(), 65535);
    EXPECT_EQ(file.tensor("c64").item<c10::complex<float>>(), c10::complex<float>(1, 2));
    EXPECT_EQ(file.tensor("scalar").dim(), 0);
    EXPECT_EQ(file.tensor("scalar").item<float>(), 2.5F);
    EXPECT_EQ(file.tensor("empty").sizes(), at::IntArrayRef({0, 2}));
    EXPECT_TRUE(at::equal(file.tensor("gewicht.größe.重み"), at::ones({2})));
  }
  EXPECT_NE(SafetensorsFile(folder.file("unpadded")).header().data_begin % 2, 0U);
  EXPECT_TRUE(SafetensorsFile(folder.file("none")).header().tensors.empty());
}

}  // namespace
}  // namespace lockstep::snapshot
