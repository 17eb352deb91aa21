#include <ATen/ATen.h>
#include <lockstep/collectives/check.h>
#include <lockstep/inputs/datasets/files/file_bytes.h>
#include <lockstep/inputs/idx_file.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

namespace lockstep {
namespace {

constexpr size_t magic_bytes = 4;

c10::ScalarType element_type(const detail::FileBytes& file) {
  switch (file.data()[2]) {
    case 0x08:
      return at::kByte;
    case 0x09:
      return at::kChar;
    case 0x0B:
      return at::kShort;
    case 0x0C:
      return at::kInt;
    case 0x0D:
      return at::kFloat;
    case 0x0E:
      return at::kDouble;
    default:
      file.check(false, 2, "element type ", static_cast<int>(file.data()[2]),
                 ", expected 8 (uint8), 9, 11, 12, 13 or 14");
      return at::kByte;
  }
}

std::vector<int64_t> read_shape(const detail::FileBytes& file) {
  const uint8_t* bytes = file.data();
  file.check(file.size() >= magic_bytes, file.size(), "the file ends in the magic number");
  file.check(bytes[0] == 0 && bytes[1] == 0, 0, "bad magic number, starts with ",
             static_cast<int>(bytes[0]), " ", static_cast<int>(bytes[1]),
             ", expected the 0 0 of an IDX file");
  const size_t dimensions = bytes[3];
  file.check(dimensions >= 1, 3, "0 dimensions, expected 1 or more");
  file.check(file.size() >= magic_bytes * (1 + dimensions), file.size(),
             "the file ends in the header, expected ", dimensions, " dimensions of 4 bytes");
  std::vector<int64_t> shape;
  for (size_t d = 0; d < dimensions; ++d) {
    const uint8_t* size = bytes + magic_bytes * (1 + d);
    shape.push_back(int64_t{size[0]} << 24 | int64_t{size[1]} << 16 | int64_t{size[2]} << 8 |
                    int64_t{size[3]});
  }
  return shape;
}

/// Bytes of the elements; every size must be positive and the product must fit.
size_t data_bytes(const detail::FileBytes& file, const std::vector<int64_t>& shape,
                  size_t element) {
  uint64_t bytes = element;
  for (size_t d = 0; d < shape.size(); ++d) {
    const auto size = static_cast<uint64_t>(shape[d]);
    const size_t offset = magic_bytes * (1 + d);
    file.check(size > 0, offset, "dimension ", d, " is 0, expected 1 or more");
    file.check(bytes <= std::numeric_limits<int64_t>::max() / size, offset,
               "the dimensions multiply to more than 2^63 bytes");
    bytes *= size;
  }
  return bytes;
}

struct Header {
  Header() = default;
  /// Throws unless the rest of the file is exactly the elements.
  explicit Header(const detail::FileBytes& file)
      : shape(read_shape(file)), type(element_type(file)), bytes(magic_bytes * (1 + shape.size())) {
    const size_t expected = data_bytes(file, shape, c10::elementSize(type));
    const size_t found = file.size() - bytes;
    file.check(found >= expected, file.size(), "the file ends after ", found,
               " bytes of data, expected ", expected, " for shape ", c10::IntArrayRef(shape));
    file.check(found == expected, bytes + expected, found - expected,
               " trailing bytes after the data of shape ", c10::IntArrayRef(shape));
  }

  std::vector<int64_t> shape;
  c10::ScalarType type = at::kByte;
  size_t bytes = 0;  // before the elements
};

void swap_bytes(uint8_t* data, size_t bytes, size_t element) {
  for (size_t i = 0; i < bytes; i += element) {
    std::reverse(data + i, data + i + element);
  }
}

std::string plain_or_gzip(const std::string& path) {
  const std::string gzip = path + ".gz";
  return access(path.c_str(), F_OK) != 0 && access(gzip.c_str(), F_OK) == 0 ? gzip : path;
}

}  // namespace

at::Tensor read_idx(const std::string& path) {
  Header header;
  const detail::FileBytes file(path, [&](const detail::FileBytes& of) { header = Header(of); });
  const auto bytes = file.share();
  uint8_t* const data = bytes->data() + header.bytes;
  const size_t element = c10::elementSize(header.type);
  swap_bytes(data, element > 1 ? bytes->size() - header.bytes : 0, element);
  const at::Tensor raw = at::from_blob(
      data, header.shape, [bytes](void*) {}, at::dtype(header.type));
  return element > 1 ? raw.clone() : raw;  // wider elements need not be aligned in the file
}

LabelledImages read_idx_images(const std::string& folder, const std::string& prefix,
                               int64_t classes) {
  const std::string images_path = plain_or_gzip(folder + "/" + prefix + "-images-idx3-ubyte");
  const std::string labels_path = plain_or_gzip(folder + "/" + prefix + "-labels-idx1-ubyte");
  const at::Tensor images = read_idx(images_path);
  const at::Tensor labels = read_idx(labels_path);
  LOCKSTEP_CHECK_CODE(images.dim() == 3 && images.scalar_type() == at::kByte, ExitCode::data,
                      images_path, ", byte 2: holds ", images.scalar_type(), " of shape ",
                      images.sizes(), ", expected uint8 images of 3 dimensions");
  LOCKSTEP_CHECK_CODE(labels.dim() == 1 && labels.scalar_type() == at::kByte, ExitCode::data,
                      labels_path, ", byte 2: holds ", labels.scalar_type(), " of shape ",
                      labels.sizes(), ", expected uint8 labels of 1 dimension");
  LOCKSTEP_CHECK_CODE(images.size(0) == labels.size(0), ExitCode::data, labels_path,
                      ", byte 4: has ", labels.size(0), " labels, expected ", images.size(0),
                      " as there are images in ", images_path);
  const auto* label = labels.const_data_ptr<uint8_t>();
  for (int64_t i = 0; i < labels.size(0); ++i) {
    LOCKSTEP_CHECK_CODE(label[i] < classes, ExitCode::data, labels_path, ", byte ", 8 + i,
                        ": label ", static_cast<int>(label[i]), ", expected one below ", classes);
  }
  return {images.unsqueeze(1), labels.to(at::kLong)};
}

}  // namespace lockstep
