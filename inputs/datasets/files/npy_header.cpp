#include <c10/util/ArrayRef.h>
#include <lockstep/collectives/impl/file_format.h>
#include <lockstep/inputs/datasets/files/npy_header.h>

#include <charconv>
#include <limits>
#include <string>
#include <utility>

namespace lockstep::detail {
namespace {

constexpr size_t kMostDimensions = 64;  // NumPy's limit
constexpr std::string_view kMagic("\x93NUMPY", 6);

constexpr std::pair<std::string_view, at::ScalarType> kTypes[] = {
    {"b1", at::kBool},         {"i1", at::kChar},          {"u1", at::kByte},   {"i2", at::kShort},
    {"u2", at::kUInt16},       {"i4", at::kInt},           {"u4", at::kUInt32}, {"i8", at::kLong},
    {"u8", at::kUInt64},       {"f2", at::kHalf},          {"f4", at::kFloat},  {"f8", at::kDouble},
    {"c8", at::kComplexFloat}, {"c16", at::kComplexDouble}};

/// Reads the dictionary of the header, a Python literal.
class Literal {
 public:
  Literal(const MappedData& file, size_t begin, size_t end)
      : file_(file), text_(file.text().substr(begin, end - begin)), begin_(begin) {}

  size_t offset() const { return begin_ + at_; }
  template <typename... Message>
  void check(bool condition, const Message&... message) const {
    file_.check(condition, offset(), message...);
  }
  /// Skips spaces. If `token` follows, skips it and returns true.
  bool take(std::string_view token) {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t')) {
      ++at_;
    }
    const bool found = text_.substr(at_, token.size()) == token;
    at_ += found ? token.size() : 0;
    return found;
  }
  void expect(std::string_view token) {
    check(take(token), "the header of the array is malformed, expected ", token);
  }
  std::string_view string() {
    const char quote = take("\"") ? '"' : '\'';
    if (quote == '\'') {
      expect("'");
    }
    const size_t end = text_.find(quote, at_);
    check(end != std::string_view::npos, "a text in the header does not end");
    const std::string_view text = text_.substr(at_, end - at_);
    at_ = end + 1;
    return text;
  }
  int64_t number() {
    take("");
    int64_t value = 0;
    const char* first = text_.data() + at_;
    const auto [end, error] = std::from_chars(first, text_.data() + text_.size(), value);
    check(error == std::errc() && value >= 0, "expected a dimension, 0 or more and below 2^63");
    at_ += static_cast<size_t>(end - first);
    take("L");  // a suffix of Python 2
    return value;
  }
  bool at_end() {
    take("");
    return at_ == text_.size();
  }

 private:
  const MappedData& file_;
  std::string_view text_;
  size_t begin_;
  size_t at_ = 0;
};

at::ScalarType dtype_of(Literal& literal) {
  literal.check(!literal.take("["),
                "a structured array, expected one type; save each field as an array");
  const std::string_view descr = literal.string();
  const std::string name(descr);
  literal.check(descr.size() >= 2, "element type '", name, "', expected such as '<f4'");
  literal.check(descr[1] != 'O', "element type '", name,
                "' is Python objects; save an array of numbers");
  literal.check(descr[0] != '>' || descr.substr(2) == "1", "element type '", name,
                "' is big-endian; save array.astype('<", name.substr(1), "')");
  literal.check(std::string_view("<>=|").find(descr[0]) != std::string_view::npos, "element type '",
                name, "', expected such as '<f4'");
  for (const auto& [known, dtype] : kTypes) {
    if (descr.substr(1) == known) {
      return dtype;
    }
  }
  literal.check(false, "element type '", name,
                "', expected bool, int8 to int64, uint8 to uint64, float16 to float64 or complex");
  return at::kByte;
}

std::vector<int64_t> shape_of(Literal& literal) {
  std::vector<int64_t> shape;
  literal.expect("(");
  while (!literal.take(")")) {
    literal.check(shape.size() < kMostDimensions, "more than ", kMostDimensions, " dimensions");
    shape.push_back(literal.number());
    if (!literal.take(",")) {
      literal.expect(")");
      break;
    }
  }
  return shape;
}

/// Bytes of the elements; the product must fit even where a dimension is 0.
size_t data_bytes(const Literal& literal, const std::vector<int64_t>& shape, size_t element) {
  uint64_t most = element;
  bool empty = false;
  for (const int64_t size : shape) {
    empty = empty || size == 0;
    const auto factor = static_cast<uint64_t>(size == 0 ? 1 : size);
    literal.check(most <= std::numeric_limits<int64_t>::max() / factor,
                  "the dimensions multiply to more than 2^63 bytes");
    most *= factor;
  }
  return empty ? 0 : most;
}

}  // namespace

NpyHeader NpyHeader::parse(const MappedData& file) {
  const uint8_t* bytes = file.data();
  if (file.text().substr(0, kMagic.size()) != kMagic) {
    const FileFormat* format = known_format(file.text());
    file.check(format == nullptr, 0, "this is a file of ", format != nullptr ? format->name : "",
               ", no .npy file; ", format != nullptr ? format->advice : "");
    file.check(false, 0, "bad magic number, expected that of a .npy file");
  }
  file.check(file.size() >= 12, file.size(), "the file ends in the header");
  const int version = bytes[6];
  file.check(version >= 1 && version <= 3, 6, "version ", version, ", expected 1 to 3");
  size_t length = bytes[8] | size_t{bytes[9]} << 8;
  if (version > 1) {
    length |= size_t{bytes[10]} << 16 | size_t{bytes[11]} << 24;
  }
  const size_t begin = version > 1 ? 12 : 10;
  file.check(length <= file.size() - begin, 8, "a header of ", length,
             " bytes, more than the file has");
  Literal literal(file, begin, begin + length);
  NpyHeader header = {at::kByte, false, {}, begin + length};
  int found = 0;
  literal.expect("{");
  while (!literal.take("}")) {
    const std::string_view key = literal.string();
    literal.expect(":");
    if (key == "descr") {
      header.dtype = dtype_of(literal);
      found |= 1;
    } else if (key == "fortran_order") {
      header.fortran_order = literal.take("True");
      literal.check(header.fortran_order || literal.take("False"), "expected True or False");
      found |= 2;
    } else {
      literal.check(key == "shape", "unknown key '", std::string(key), "'");
      header.shape = shape_of(literal);
      found |= 4;
    }
    if (!literal.take(",")) {
      literal.expect("}");
      break;
    }
  }
  literal.check(literal.at_end(), "text behind the dictionary of the header");
  literal.check(found == 7, "the header lacks descr, fortran_order or shape");
  const size_t expected = data_bytes(literal, header.shape, c10::elementSize(header.dtype));
  file.check(file.size() - header.data_begin == expected, file.size(), "the file has ",
             file.size() - header.data_begin, " bytes of data, expected ", expected, " for shape ",
             c10::IntArrayRef(header.shape));
  return header;
}

}  // namespace lockstep::detail
