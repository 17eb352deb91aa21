#include <lockstep/checkpointing/snapshot/format/json_document.h>
#include <lockstep/checkpointing/snapshot/format/rejection.h>
#include <lockstep/checkpointing/snapshot/impl/safetensors_header.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/file_format.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <functional>
#include <limits>
#include <tuple>
#include <utility>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "safetensors files are little-endian, and this code reads and writes them as they are"
#endif

namespace lockstep::snapshot {
namespace {

using nlohmann::json;

constexpr size_t kLengthBytes = 8;
constexpr char kMetadata[] = "__metadata__";

uint64_t header_length(std::string_view text, const std::string& file) {
  if (text.size() < kLengthBytes) {
    reject(file, "has ", text.size(), " bytes, too few for a safetensors header; it is truncated");
  }
  uint64_t length = 0;
  std::copy_n(text.data(), kLengthBytes, reinterpret_cast<char*>(&length));
  const auto* format = length > text.size() - kLengthBytes ? detail::known_format(text) : nullptr;
  if (format != nullptr) {
    reject_at(file, 0, "this is a file of ", format->name, ", no safetensors file; ",
              format->advice);
  }
  if (length > SafetensorsHeader::kMaxBytes) {
    reject_at(file, 0, "announces a header of ", length, " bytes; at most ",
              SafetensorsHeader::kMaxBytes, " are allowed: this is no safetensors file");
  }
  if (length > text.size() - kLengthBytes) {
    reject_at(file, 0, "announces a header of ", length, " bytes, but only ",
              text.size() - kLengthBytes, " follow; the file is truncated");
  }
  if (length == 0 || text[kLengthBytes] != '{') {
    reject_at(file, kLengthBytes, "the header does not start with '{'");
  }
  return length;
}

/// Reads one entry; errors name the tensor.
class EntryReader {
 public:
  EntryReader(const std::string& file, const std::string& name) : file_(file), name_(name) {}

  StoredTensor read(const json& entry) const {
    if (!entry.is_object() || entry.size() != 3 || !entry.contains("dtype") ||
        !entry.contains("shape") || !entry.contains("data_offsets")) {
      wrong("must have exactly dtype, shape and data_offsets");
    }
    StoredTensor tensor;
    tensor.name = name_;
    tensor.type = type(entry["dtype"]);
    tensor.sizes = sizes(entry["shape"]);
    std::tie(tensor.begin, tensor.end) = offsets(entry["data_offsets"]);
    const uint64_t bytes = bytes_of(tensor);
    if (tensor.end - tensor.begin != bytes) {
      wrong("its shape and dtype make ", bytes, " bytes, but data_offsets span ",
            tensor.end - tensor.begin);
    }
    return tensor;
  }

 private:
  template <typename... Parts>
  [[noreturn]] void wrong(const Parts&... parts) const {
    reject_at(file_, kLengthBytes, "tensor \"", name_, "\": ", parts...);
  }

  const StoredType* type(const json& value) const {
    const StoredType* type =
        value.is_string() ? find_stored_type(value.get<std::string>()) : nullptr;
    if (type == nullptr) {
      wrong("unknown dtype ", value.dump());
    }
    return type;
  }

  std::vector<int64_t> sizes(const json& value) const {
    if (!value.is_array() || value.size() > SafetensorsHeader::kMaxDimensions) {
      wrong("its shape must be a list of at most ", SafetensorsHeader::kMaxDimensions, " sizes");
    }
    std::vector<int64_t> sizes;
    for (const json& size : value) {
      if (!size.is_number_unsigned() ||
          size.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        wrong("its shape has ", size.dump(), ", which is no size");
      }
      sizes.push_back(size.get<int64_t>());
    }
    return sizes;
  }

  std::pair<uint64_t, uint64_t> offsets(const json& value) const {
    if (!value.is_array() || value.size() != 2 || !value[0].is_number_unsigned() ||
        !value[1].is_number_unsigned() || value[0].get<uint64_t>() > value[1].get<uint64_t>()) {
      wrong("its data_offsets must be two ascending byte numbers, found ", value.dump());
    }
    return {value[0].get<uint64_t>(), value[1].get<uint64_t>()};
  }

  uint64_t bytes_of(const StoredTensor& tensor) const {
    uint64_t bits = static_cast<uint64_t>(tensor.type->bits);
    for (const int64_t size : tensor.sizes) {
      if (__builtin_mul_overflow(bits, static_cast<uint64_t>(size), &bits)) {
        wrong("its shape and dtype make more than 2^64 bits");
      }
    }
    if (bits % 8 != 0) {
      wrong("its ", bits, " bits are no whole number of bytes");
    }
    return bits / 8;
  }

  const std::string& file_;
  const std::string& name_;
};

std::map<std::string, std::string> read_metadata(const json& value, const std::string& file) {
  std::map<std::string, std::string> metadata;
  bool is_text_map = value.is_object();
  for (const auto& [key, text] : value.items()) {
    is_text_map = is_text_map && text.is_string();
    if (is_text_map) {
      metadata.emplace(key, text.get<std::string>());
    }
  }
  if (!is_text_map) {
    reject_at(file, kLengthBytes, "__metadata__ must map texts to texts");
  }
  return metadata;
}

/// Every byte of the data must belong to exactly one tensor.
void check_cover(const SafetensorsHeader& header, uint64_t data_bytes, const std::string& file) {
  uint64_t covered = 0;
  for (const StoredTensor& tensor : header.tensors) {
    if (tensor.begin != covered) {
      reject_at(file, header.data_begin + covered, "tensor \"", tensor.name, "\" begins at ",
                tensor.begin, " of the data, but ", covered, " is next: a ",
                tensor.begin < covered ? "tensor overlaps another" : "hole");
    }
    covered = tensor.end;
  }
  if (covered != data_bytes) {
    reject_at(file, header.data_begin + std::min(covered, data_bytes), "the tensors take ", covered,
              " bytes of data, but the file has ", data_bytes,
              covered > data_bytes ? "; it is truncated" : "; it has trailing bytes");
  }
}

}  // namespace

SafetensorsHeader SafetensorsHeader::parse(std::string_view file_text, const std::string& file) {
  const uint64_t length = header_length(file_text, file);
  JsonLimits limits;
  limits.depth = 3;
  limits.values = 10 * kMaxTensors;
  const json document =
      parse_json(file_text.substr(kLengthBytes, length), file, kLengthBytes, limits);
  SafetensorsHeader header;
  header.data_begin = kLengthBytes + length;
  if (document.size() > kMaxTensors) {
    reject_at(file, kLengthBytes, "has ", document.size(), " tensors; at most ", kMaxTensors,
              " are allowed");
  }
  for (const auto& [name, entry] : document.items()) {
    if (name == kMetadata) {
      header.metadata = read_metadata(entry, file);
    } else {
      header.tensors.push_back(EntryReader(file, name).read(entry));
    }
  }
  std::sort(header.tensors.begin(), header.tensors.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end) < std::tie(b.begin, b.end);
  });
  check_cover(header, file_text.size() - header.data_begin, file);
  return header;
}

std::string SafetensorsHeader::why_unusable(const std::string& name, size_t dimensions) {
  constexpr char kName[] = "cannot be saved under the name that it has: it is ";
  if (name.empty() || name == kMetadata) {
    return std::string(kName) + (name.empty() ? "empty" : "reserved");
  }
  if (name.size() > JsonLimits().key_bytes) {
    return c10::str(kName, name.size(), " bytes long; at most ", JsonLimits().key_bytes,
                    " are allowed");
  }
  try {
    json(name).dump();
  } catch (const json::exception&) {
    return std::string(kName) + "not UTF-8";
  }
  return dimensions <= kMaxDimensions ? ""
                                      : c10::str("has ", dimensions, " dimensions; at most ",
                                                 kMaxDimensions, " can be saved");
}

std::string SafetensorsHeader::lay_out() {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::make_tuple(-a.type->bits, std::cref(a.name)) <
           std::make_tuple(-b.type->bits, std::cref(b.name));
  });
  json document = json::object();
  if (!metadata.empty()) {
    document[kMetadata] = metadata;
  }
  uint64_t offset = 0;
  for (StoredTensor& tensor : tensors) {
    const std::string why = document.contains(tensor.name)
                                ? "cannot be saved under the name that it has: it is taken by "
                                  "another tensor"
                                : why_unusable(tensor.name, tensor.sizes.size());
    LOCKSTEP_CHECK_CODE(why.empty(), ExitCode::snapshot, "tensor \"", tensor.name, "\" ", why);
    uint64_t bits = static_cast<uint64_t>(tensor.type->bits);
    for (const int64_t size : tensor.sizes) {
      bits *= static_cast<uint64_t>(size);
    }
    tensor.begin = offset;
    tensor.end = offset += bits / 8;
    document[tensor.name] = {{"dtype", tensor.type->name},
                             {"shape", tensor.sizes},
                             {"data_offsets", {tensor.begin, tensor.end}}};
  }
  std::string text = render_json(document, "a safetensors header");
  text.append((kLengthBytes - text.size() % kLengthBytes) % kLengthBytes, ' ');
  LOCKSTEP_CHECK_CODE(text.size() <= kMaxBytes && tensors.size() <= kMaxTensors, ExitCode::snapshot,
                      "a safetensors file cannot hold ", tensors.size(), " tensors with names of ",
                      text.size(), " bytes in all; save fewer tensors in one section");
  data_begin = kLengthBytes + text.size();
  const uint64_t length = text.size();
  return std::string(reinterpret_cast<const char*>(&length), kLengthBytes) + text;
}

}  // namespace lockstep::snapshot
