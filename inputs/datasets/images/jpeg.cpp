#include <ATen/ops/empty.h>
#include <lockstep/collectives/check.h>
#include <lockstep/inputs/datasets/images/decode.h>

#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

// After <cstdio>, whose names it uses.
#include <jerror.h>
#include <jpeglib.h>

namespace lockstep::detail {
namespace {

// A progressive image has 10; each one more goes over all pixels again.
constexpr int kMostScans = 100;

/// libjpeg leaves a failed call by longjmp, so the functions below have no objects with
/// destructors.
struct Decoder {
  jpeg_decompress_struct codec = {};
  jpeg_error_mgr errors = {};
  jpeg_progress_mgr progress = {};
  std::jmp_buf failed;
  char problem[JMSG_LENGTH_MAX] = "";

  ~Decoder() { jpeg_destroy_decompress(&codec); }
  bool has_ink() const { return codec.num_components == 4; }
};

Decoder& decoder_of(j_common_ptr codec) {
  return *static_cast<Decoder*>(codec->client_data);
}

void leave(j_common_ptr codec) {
  Decoder& decoder = decoder_of(codec);
  codec->err->format_message(codec, decoder.problem);
  std::longjmp(decoder.failed, 1);
}

/// Most warnings leave all pixels. After these two the rest of the pixels is made up.
void warn(j_common_ptr codec, int level) {
  if (level < 0 &&
      (codec->err->msg_code == JWRN_JPEG_EOF || codec->err->msg_code == JWRN_HIT_MARKER)) {
    leave(codec);
  }
}

void count_scans(j_common_ptr codec) {
  Decoder& decoder = decoder_of(codec);
  if (decoder.codec.input_scan_number > kMostScans) {
    std::snprintf(decoder.problem, sizeof(decoder.problem), "it has more than %d scans",
                  kMostScans);
    std::longjmp(decoder.failed, 1);
  }
}

/// False after a failure.
bool read_header(Decoder& decoder, std::string_view bytes) {
  jpeg_decompress_struct& codec = decoder.codec;
  codec.err = jpeg_std_error(&decoder.errors);
  codec.client_data = &decoder;
  decoder.errors.error_exit = leave;
  decoder.errors.emit_message = warn;
  if (setjmp(decoder.failed) != 0) {
    return false;
  }
  jpeg_create_decompress(&codec);
  decoder.progress.progress_monitor = count_scans;
  codec.progress = &decoder.progress;
  jpeg_mem_src(&codec, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&codec, TRUE);
  codec.out_color_space = decoder.has_ink() ? JCS_CMYK : JCS_RGB;
  return true;
}

/// value * scale / 255, rounded as Pillow does it.
int scaled(int value, int scale) {
  const int product = value * scale + 128;
  return ((product >> 8) + product) >> 8;
}

/// Pillow's: all programs that write such images store the amount of light, not of ink.
void to_colours(const uint8_t* ink, uint8_t* colours, int64_t pixels) {
  for (int64_t i = 0; i < pixels; ++i, ink += 4, colours += 3) {
    for (int c = 0; c < 3; ++c) {
      colours[c] = static_cast<uint8_t>(ink[3] - scaled(255 - ink[c], ink[3]));
    }
  }
}

/// `ink`: a row of 4 components, for images that have them. False after a failure.
bool read_rows(Decoder& decoder, uint8_t* pixels, uint8_t* ink) {
  jpeg_decompress_struct& codec = decoder.codec;
  if (setjmp(decoder.failed) != 0) {
    return false;
  }
  jpeg_start_decompress(&codec);
  const int64_t width = codec.output_width;
  while (codec.output_scanline < codec.output_height) {
    uint8_t* colours = pixels + 3 * width * codec.output_scanline;
    JSAMPROW row = decoder.has_ink() ? ink : colours;
    jpeg_read_scanlines(&codec, &row, 1);
    if (decoder.has_ink()) {
      to_colours(ink, colours, width);
    }
  }
  jpeg_finish_decompress(&codec);
  return true;
}

}  // namespace

at::Tensor decode_jpeg(std::string_view bytes, const std::string& name) {
  Decoder decoder;
  LOCKSTEP_CHECK_CODE(read_header(decoder, bytes), ExitCode::data, name,
                      ": the JPEG header is damaged: ", decoder.problem);
  const int64_t width = decoder.codec.image_width;
  const int64_t height = decoder.codec.image_height;
  LOCKSTEP_CHECK_CODE(width * height <= kMostPixels, ExitCode::data, name, ": is ", width, " x ",
                      height, " pixels, expected at most ", kMostPixels, " in all");
  at::Tensor pixels = at::empty({height, width, 3}, at::kByte);
  const at::Tensor ink = at::empty({decoder.has_ink() ? 4 * width : 0}, at::kByte);
  LOCKSTEP_CHECK_CODE(
      read_rows(decoder, pixels.mutable_data_ptr<uint8_t>(), ink.mutable_data_ptr<uint8_t>()),
      ExitCode::data, name, ": the JPEG data is damaged: ", decoder.problem);
  return pixels;
}

}  // namespace lockstep::detail
