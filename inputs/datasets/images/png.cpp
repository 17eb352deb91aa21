#include <ATen/ops/empty.h>
#include <lockstep/collectives/check.h>
#include <lockstep/inputs/datasets/images/decode.h>
#include <png.h>

#include <csetjmp>
#include <cstring>
#include <string>

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

constexpr size_t kChunkName = 5;
constexpr png_byte kUnused[] =
    "bKGD\0cHRM\0eXIf\0gAMA\0hIST\0iCCP\0iTXt\0oFFs\0pCAL\0pHYs\0sBIT\0sCAL\0sPLT\0sRGB\0tEXt\0"
    "tIME\0zTXt";

struct Reader {
  png_structp png = nullptr;
  png_infop info = nullptr;
  int passes = 1;
  ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }
};

/// Converts every image to 8-bit red, green and blue. False after a failure.
bool read_header(Reader& reader) {
  if (setjmp(png_jmpbuf(reader.png))) {
    return false;
  }
  // What is not used is skipped: a packed text or profile could take any memory.
  png_set_keep_unknown_chunks(reader.png, PNG_HANDLE_CHUNK_NEVER, kUnused,
                              sizeof(kUnused) / kChunkName);
  png_read_info(reader.png, reader.info);
  png_set_expand(reader.png);
  png_set_scale_16(reader.png);
  png_set_strip_alpha(reader.png);
  png_set_gray_to_rgb(reader.png);
  reader.passes = png_set_interlace_handling(reader.png);
  png_read_update_info(reader.png, reader.info);
  return true;
}

bool read_rows(Reader& reader, png_bytep pixels, size_t row_bytes, png_uint_32 height) {
  if (setjmp(png_jmpbuf(reader.png))) {
    return false;
  }
  for (int pass = 0; pass < reader.passes; ++pass) {
    for (png_uint_32 y = 0; y < height; ++y) {
      png_read_row(reader.png, pixels + y * row_bytes, nullptr);
    }
  }
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
  LOCKSTEP_CHECK_CODE(read_rows(reader, pixels.mutable_data_ptr<uint8_t>(),
                                static_cast<size_t>(row), static_cast<png_uint_32>(height)),
                      ExitCode::data, name, ": the PNG data is damaged: ", input.problem);
  return pixels;
}

}  // namespace lockstep::detail
