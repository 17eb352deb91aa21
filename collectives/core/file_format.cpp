#include <lockstep/collectives/impl/file_format.h>

#include <algorithm>
#include <cstddef>

namespace lockstep::detail {
namespace {

using namespace std::string_view_literals;

constexpr char kUnpack[] =
    "unpack it first: only gzip of a single file is unpacked while it is read";
constexpr char kEncode[] = "save it as UTF-8";
constexpr char kConvert[] = "docs/data.md has a program that reads it";

struct Mark {
  size_t offset;
  std::string_view bytes;
  FileFormat format;
};

constexpr Mark kMarks[] = {
    {0, "\x1f\x8b\x08"sv, {"gzip", "unpack it first"}},
    {0, "\xfd\x37zXZ\0"sv, {"xz", kUnpack}},
    {0, "BZh91AY&SY"sv, {"bzip2", kUnpack}},
    {0, "\x28\xb5\x2f\xfd"sv, {"zstd", kUnpack}},
    {257, "ustar\0\60\60"sv, {"tar", kUnpack}},  // POSIX
    {257, "ustar  \0"sv, {"tar", kUnpack}},      // GNU
    {0, "\x93NUMPY"sv, {"numpy.save (.npy)", "read it with NpyArray"}},
    {0, "\x89HDF\r\n\x1a\n"sv, {"HDF5", kConvert}},
    {0, "CDF\1"sv, {"NetCDF", kConvert}},
    {0, "CDF\2"sv, {"NetCDF", kConvert}},
    {0, "CDF\5"sv, {"NetCDF", kConvert}},
    {0,
     "MATLAB 5.0 MAT-file"sv,
     {"MATLAB", "save its arrays with scipy.io.loadmat and numpy.save"}},
    {0, "PAR1\x15"sv, {"Parquet", "save its columns as CSV or .npy"}},
    {0, "ARROW1\0\0"sv, {"Arrow (Feather)", "save its columns as CSV or .npy"}},
    {0, "\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"sv, {"Excel (.xls)", "save it as CSV in UTF-8"}},
    {0,
     "version https://git-lfs.github.com/spec/"sv,
     {"Git LFS that is not fetched yet", "run git lfs pull"}},
    {0, "\xff\xfe\0\0"sv, {"text in UTF-32", kEncode}},
    {0, "\0\0\xfe\xff"sv, {"text in UTF-32", kEncode}},
    {0, "\xff\xfe"sv, {"text in UTF-16 (Excel's \"Unicode text\")", kEncode}},
    {0, "\xfe\xff"sv, {"text in UTF-16", kEncode}}};

constexpr FileFormat kPickle = {
    "pickle (torch.save before 1.6 wrote such files)",
    "pickle can run any code; save the tensors with safetensors.torch.save_file"};

constexpr FileFormat kWideText = {"text in UTF-16", kEncode};

/// By the name of the first file in it.
constexpr struct {
  std::string_view ending;
  FileFormat format;
} kZips[] = {{".npy", {"numpy.savez (.npz)", "save each array with numpy.save"}},
             {"/data.pkl", {"torch.save", "save the tensors with safetensors.torch.save_file"}},
             {"[Content_Types].xml", {"Excel (.xlsx)", "save it as CSV in UTF-8"}},
             {"", {"zip", kUnpack}}};

// A text or a small file that begins like an archive is none.
constexpr size_t kSmallest = 30;

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

const FileFormat* zip_format(std::string_view file) {
  constexpr size_t kLocalHeader = 30;
  const size_t length = static_cast<unsigned char>(file[26]) |
                        static_cast<size_t>(static_cast<unsigned char>(file[27])) << 8;
  const std::string_view name = file.substr(kLocalHeader, length);
  for (const auto& [ending, format] : kZips) {
    if (ends_with(name, ending)) {
      return &format;
    }
  }
  return nullptr;
}

/// Whether it begins with letters of ASCII in 16 bits each, without a byte order mark.
bool is_wide_text(std::string_view file) {
  const size_t letter = file[0] == '\0' ? 1 : 0;
  for (size_t i = 0; i < 16; i += 2) {
    const char printed = file[i + letter];
    if (file[i + 1 - letter] != '\0' || printed > '~' ||
        (printed < ' ' && (i == 0 || (printed != '\t' && printed != '\r' && printed != '\n')))) {
      return false;
    }
  }
  return true;
}

}  // namespace

const FileFormat* known_format(std::string_view beginning) {
  for (const auto& [offset, bytes, format] : kMarks) {
    // A byte order mark is enough.
    const size_t smallest = format.advice == kEncode ? bytes.size() : kSmallest;
    if (beginning.size() >= std::max(smallest, offset) &&
        beginning.substr(offset, bytes.size()) == bytes) {
      return &format;
    }
  }
  if (beginning.size() < kSmallest) {
    return nullptr;
  }
  if (beginning.substr(0, 4) == "PK\3\4"sv) {
    return zip_format(beginning);
  }
  if (beginning[0] == '\x80' && beginning[1] >= 2 && beginning[1] <= 5) {
    return &kPickle;
  }
  return is_wide_text(beginning) ? &kWideText : nullptr;
}

}  // namespace lockstep::detail
