#include <ATen/ops/empty.h>
#include <lockstep/collectives/check.h>
#include <lockstep/inputs/datasets/images/decode.h>
#include <turbojpeg.h>

#include <memory>

namespace lockstep::detail {
namespace {

struct Destroy {
  void operator()(void* decoder) const { tjDestroy(decoder); }
};

}  // namespace

at::Tensor decode_jpeg(std::string_view bytes, const std::string& name) {
  const std::unique_ptr<void, Destroy> decoder(tjInitDecompress());
  LOCKSTEP_CHECK(decoder != nullptr, name, ": libjpeg-turbo cannot start: ", tjGetErrorStr());
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  int width = 0;
  int height = 0;
  int subsampling = 0;
  int colours = 0;
  LOCKSTEP_CHECK_CODE(tjDecompressHeader3(decoder.get(), data, bytes.size(), &width, &height,
                                          &subsampling, &colours) == 0,
                      ExitCode::data, name,
                      ": the JPEG header is damaged: ", tjGetErrorStr2(decoder.get()));
  LOCKSTEP_CHECK_CODE(width > 0 && height > 0 && int64_t{width} * height <= kMostPixels,
                      ExitCode::data, name, ": is ", width, " x ", height,
                      " pixels, expected at most ", kMostPixels, " in all");
  LOCKSTEP_CHECK_CODE(colours != TJCS_CMYK && colours != TJCS_YCCK, ExitCode::data, name,
                      ": is a CMYK image, expected grey or RGB; convert the image");
  at::Tensor pixels = at::empty({height, width, 3}, at::kByte);
  const int result =
      tjDecompress2(decoder.get(), data, bytes.size(), pixels.mutable_data_ptr<uint8_t>(), width,
                    /*pitch=*/0, height, TJPF_RGB, TJFLAG_ACCURATEDCT);
  // A warning, as for a truncated file, means missing pixels: it counts as an error.
  LOCKSTEP_CHECK_CODE(result == 0, ExitCode::data, name,
                      ": the JPEG data is damaged: ", tjGetErrorStr2(decoder.get()));
  return pixels;
}

}  // namespace lockstep::detail
