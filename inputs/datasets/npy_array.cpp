#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <lockstep/inputs/datasets/files/npy_header.h>
#include <lockstep/inputs/npy_array.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace lockstep {
namespace {

/// In the order of the bytes of the file.
at::Tensor elements(const std::shared_ptr<detail::MappedData>& file,
                    const detail::NpyHeader& header, const std::vector<int64_t>& shape) {
  uint8_t* data = file->data() + header.data_begin;
  if (header.dtype == at::kBool) {  // a byte that is neither 0 nor 1 would be no bool
    return at::from_blob(data, shape, at::kByte).ne(0);
  }
  if (reinterpret_cast<uintptr_t>(data) % c10::elementSize(header.dtype) == 0) {
    return at::from_blob(
        data, shape, [file](void*) {}, at::dtype(header.dtype));
  }
  at::Tensor copy = at::empty(shape, at::dtype(header.dtype));
  if (copy.nbytes() != 0) {
    std::memcpy(copy.mutable_data_ptr(), data, copy.nbytes());
  }
  return copy;
}

}  // namespace

NpyArray::NpyArray(const std::string& path) {
  const auto file = std::make_shared<detail::MappedData>(path);
  const auto header = detail::NpyHeader::parse(*file);
  std::vector<int64_t> shape = header.shape;
  file->check(!shape.empty(), 0, "the array has no dimension, expected a first one of samples");
  if (!header.fortran_order) {
    array_ = elements(file, header, shape);
    return;
  }
  std::reverse(shape.begin(), shape.end());
  std::vector<int64_t> reversed;
  for (size_t d = shape.size(); d > 0; --d) {
    reversed.push_back(static_cast<int64_t>(d) - 1);
  }
  array_ = elements(file, header, shape).permute(reversed);
}

at::Tensor NpyArray::get(size_t index) const {
  return array_.select(0, static_cast<int64_t>(index)).clone(at::MemoryFormat::Contiguous);
}

}  // namespace lockstep
