#include <ATen/ATen.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/inputs/datasets/files/mapped_data.h>
#include <lockstep/inputs/datasets/images/decode.h>
#include <lockstep/inputs/image_file.h>

namespace lockstep {
namespace {

bool starts_with(std::string_view bytes, std::string_view first) {
  return bytes.substr(0, first.size()) == first;
}

at::Tensor decode(std::string_view bytes, const std::string& name) {
  if (starts_with(bytes, "\xff\xd8\xff")) {
    return detail::decode_jpeg(bytes, name);
  }
  if (starts_with(bytes, "\x89PNG\r\n\x1a\n")) {
    return detail::decode_png(bytes, name);
  }
  throw Error(c10::str(name, ", byte 0: is neither a JPEG nor a PNG image"), ExitCode::data);
}

/// As Pillow does it, in integers.
at::Tensor grey(const at::Tensor& pixels) {
  const at::Tensor weights = at::tensor({19595, 38470, 7471}, at::kInt);
  return ((pixels.to(at::kInt) * weights).sum(-1, /*keepdim=*/true, at::kInt) + 0x8000)
      .bitwise_right_shift(16)
      .to(at::kByte);
}

}  // namespace

at::Tensor decode_image(std::string_view bytes, const std::string& name, int channels) {
  LOCKSTEP_CHECK(channels == 1 || channels == 3, "an image of ", channels,
                 " channels, expected 1 or 3");
  const at::Tensor pixels = decode(bytes, name);
  return (channels == 1 ? grey(pixels) : pixels).permute({2, 0, 1}).contiguous();
}

at::Tensor read_image(const std::string& path, int channels) {
  const detail::MappedData file(path);
  return decode_image(file.text(), path, channels);
}

}  // namespace lockstep
