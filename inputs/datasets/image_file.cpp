#include <ATen/ATen.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/file_format.h>
#include <lockstep/inputs/datasets/files/mapped_data.h>
#include <lockstep/inputs/datasets/images/decode.h>
#include <lockstep/inputs/image_file.h>

namespace lockstep {
namespace {

bool starts_with(std::string_view bytes, std::string_view first) {
  return bytes.substr(0, first.size()) == first;
}

/// The format of what is neither JPEG nor PNG; empty if unknown.
std::string other_format(std::string_view bytes) {
  using namespace std::string_view_literals;
  constexpr struct {
    size_t offset;
    std::string_view mark;
    const char* name;
  } kFormats[] = {{0, "GIF8"sv, "GIF"},
                  {8, "WEBP"sv, "WebP"},
                  {0, "BM"sv, "BMP"},
                  {0, "II*\0"sv, "TIFF"},
                  {0, "MM\0*"sv, "TIFF"},
                  {4, "ftypavif"sv, "AVIF"},
                  {4, "ftyphei"sv, "HEIF"},
                  {0, "\0\0\0\x0cjP  "sv, "JPEG 2000"},
                  {0, "\0\5\x16\7"sv, "AppleDouble (macOS's ._ files)"}};
  for (const auto& [offset, mark, name] : kFormats) {
    if (bytes.size() > offset && starts_with(bytes.substr(offset), mark)) {
      return c10::str(name, "; convert it to PNG");
    }
  }
  const detail::FileFormat* format = detail::known_format(bytes);
  return format != nullptr ? c10::str(format->name, "; ", format->advice) : "";
}

at::Tensor decode(std::string_view bytes, const std::string& name) {
  if (starts_with(bytes, "\xff\xd8\xff")) {
    return detail::decode_jpeg(bytes, name);
  }
  if (starts_with(bytes, "\x89PNG\r\n\x1a\n")) {
    return detail::decode_png(bytes, name);
  }
  const std::string other = other_format(bytes);
  throw Error(c10::str(name, ", byte 0: is neither a JPEG nor a PNG image",
                       other.empty() ? "" : "; this is a file of ", other),
              ExitCode::data);
}

/// [height, width, 1]. As Pillow does it, in integers.
at::Tensor grey(const at::Tensor& pixels) {
  at::Tensor result = at::empty({pixels.size(0), pixels.size(1), 1}, at::kByte);
  const auto* from = pixels.const_data_ptr<uint8_t>();
  auto* to = result.mutable_data_ptr<uint8_t>();
  for (int64_t i = 0; i < result.numel(); ++i, from += 3) {
    to[i] = static_cast<uint8_t>(
        (19595U * from[0] + 38470U * from[1] + 7471U * from[2] + 0x8000U) >> 16U);
  }
  return result;
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
