#include <ATen/ops/empty.h>
#include <lockstep/collectives/check.h>
#include <lockstep/inputs/datasets/images/decode.h>
#include <png.h>

#include <csetjmp>
#include <cstring>
#include <string>
#include <vector>

namespace lockstep::detail {
namespace {

/// libpng leaves a failed call by longjmp, so the functions below have no objects with destructors.
struct Input {
  const char* data;
  size_t left;
  char problem[128];
};

void read_bytes(png_structp png, png_bytep to, size_t count) {
  auto* input = static_cast<Input*>(png_get_io_ptr(png));
  if (count > input->left) {
    png_error(png, "the file ends in the middle of the image");
  }
  std::memcpy(to, input->data, count);
  input->data += count;
  input->left -= count;
}

[[noreturn]] void leave(png_structp png, png_const_charp problem) {
  auto* input = static_cast<Input*>(png_get_error_ptr(png));
  std::strncpy(input->problem, problem, sizeof(input->problem) - 1);
  png_longjmp(png, 1);
}

void ignore(png_structp, png_const_charp) {}

struct Reader {
  png_structp png = nullptr;
  png_infop info = nullptr;
  ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }
};

/// Converts every image to 8-bit red, green and blue. False after a failure.
bool read_header(Reader& reader) {
  if (setjmp(png_jmpbuf(reader.png))) {
    return false;
  }
  png_read_info(reader.png, reader.info);
  png_set_expand(reader.png);
  png_set_scale_16(reader.png);
  png_set_strip_alpha(reader.png);
  png_set_gray_to_rgb(reader.png);
  png_set_interlace_handling(reader.png);
  png_read_update_info(reader.png, reader.info);
  return true;
}

/// `rows`: a pointer for each row.
bool read_rows(Reader& reader, png_bytepp rows) {
  if (setjmp(png_jmpbuf(reader.png))) {
    return false;
  }
  png_read_image(reader.png, rows);
  png_read_end(reader.png, nullptr);
  return true;
}

}  // namespace

at::Tensor decode_png(std::string_view bytes, const std::string& name) {
  Input input = {bytes.data(), bytes.size(), {}};
  Reader reader;
  reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &input, leave, ignore);
  reader.info = reader.png != nullptr ? png_create_info_struct(reader.png) : nullptr;
  LOCKSTEP_CHECK(reader.info != nullptr, name, ": libpng cannot start");
  png_set_read_fn(reader.png, &input, read_bytes);
  LOCKSTEP_CHECK_CODE(read_header(reader), ExitCode::data, name,
                      ": the PNG header is damaged: ", input.problem);
  const auto width = static_cast<int64_t>(png_get_image_width(reader.png, reader.info));
  const auto height = static_cast<int64_t>(png_get_image_height(reader.png, reader.info));
  LOCKSTEP_CHECK_CODE(width * height <= kMostPixels, ExitCode::data, name, ": is ", width, " x ",
                      height, " pixels, expected at most ", kMostPixels, " in all");
  const auto row = static_cast<int64_t>(png_get_rowbytes(reader.png, reader.info));
  LOCKSTEP_CHECK_CODE(row == 3 * width, ExitCode::data, name, ": has rows of ", row,
                      " bytes, expected ", 3 * width);
  at::Tensor pixels = at::empty({height, width, 3}, at::kByte);
  std::vector<png_bytep> rows;
  for (int64_t y = 0; y < height; ++y) {
    rows.push_back(pixels.mutable_data_ptr<uint8_t>() + y * row);
  }
  LOCKSTEP_CHECK_CODE(read_rows(reader, rows.data()), ExitCode::data, name,
                      ": the PNG data is damaged: ", input.problem);
  return pixels;
}

}  // namespace lockstep::detail
