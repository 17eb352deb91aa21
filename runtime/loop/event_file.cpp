#include <ATen/ATen.h>
#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/runtime/loop/own/event_file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <cstring>

namespace lockstep::detail {
namespace {

constexpr char kBegin[] = "events.out.tfevents.";

constexpr std::array<uint32_t, 256> crc32c_table() {
  std::array<uint32_t, 256> table = {};
  for (uint32_t byte = 0; byte < table.size(); ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value >> 1U) ^ ((value & 1U) != 0 ? 0x82F63B78U : 0U);
    }
    table[byte] = value;
  }
  return table;
}

/// The bytes of a number, the lowest first.
template <typename Number>
std::string little_endian(Number number) {
  std::string bytes(sizeof(number), '\0');
  std::memcpy(bytes.data(), &number, sizeof(number));
  return bytes;
}
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__);

// Fields of a protocol buffer: their number and kind, then their value.
std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80U; value >>= 7U) {
    bytes += static_cast<char>(value | 0x80U);
  }
  return bytes + static_cast<char>(value);
}
std::string tag(uint32_t field, uint32_t kind) {
  return varint(field << 3U | kind);
}
std::string integer_field(uint32_t field, int64_t value) {
  return tag(field, 0) + varint(static_cast<uint64_t>(value));
}
std::string double_field(uint32_t field, double value) {
  return tag(field, 1) + little_endian(value);
}
std::string bytes_field(uint32_t field, const std::string& bytes) {
  return tag(field, 2) + varint(bytes.size()) + bytes;
}
std::string float_field(uint32_t field, float value) {
  return tag(field, 5) + little_endian(value);
}

std::string doubles_field(uint32_t field, const at::Tensor& numbers) {
  const at::Tensor packed = numbers.to(at::kDouble).contiguous();
  return bytes_field(field, {static_cast<const char*>(packed.const_data_ptr()), packed.nbytes()});
}

/// A Summary with one Summary.Value.
std::string summary_of(const std::string& name, const std::string& content) {
  return bytes_field(1, bytes_field(1, name) + content);
}

/// Three bytes a pixel, the lowest row first, each row padded to whole words.
std::string as_bitmap(const at::Tensor& pixels) {
  const int64_t height = pixels.size(0), width = pixels.size(1);
  const auto row_bytes = static_cast<size_t>((3 * width + 3) / 4 * 4);
  const uint32_t header_bytes = 14, info_bytes = 40;
  const auto bytes = static_cast<uint32_t>(row_bytes * static_cast<size_t>(height));
  std::string bitmap = "BM" + little_endian(header_bytes + info_bytes + bytes) +
                       little_endian(uint32_t{0}) + little_endian(header_bytes + info_bytes) +
                       little_endian(info_bytes) + little_endian(static_cast<int32_t>(width)) +
                       little_endian(static_cast<int32_t>(height)) + little_endian(uint16_t{1}) +
                       little_endian(uint16_t{24}) + little_endian(uint32_t{0}) +
                       little_endian(bytes) + std::string(16, '\0');
  const at::Tensor rows = pixels.flip({0, 2}).contiguous();  // blue comes first
  for (int64_t row = 0; row < height; ++row) {
    const auto* first = static_cast<const char*>(rows[row].const_data_ptr());
    bitmap.append(first, static_cast<size_t>(3 * width));
    bitmap.append(row_bytes - static_cast<size_t>(3 * width), '\0');
  }
  return bitmap;
}

std::string event(double time, int64_t step, const std::string& content) {
  return tf_record(double_field(1, time) + integer_field(2, step) + content);
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Behind all files of the folder, also those that were made in this second.
std::string new_path(const std::string& folder) {
  auto number = static_cast<int64_t>(seconds_since_1970());
  for (const std::string& name : snapshot::names_in(folder)) {
    if (name.rfind(kBegin, 0) == 0) {
      number = std::max<int64_t>(number, std::atoll(name.c_str() + sizeof(kBegin) - 1) + 1);
    }
  }
  char host[HOST_NAME_MAX + 1] = "host";
  gethostname(host, sizeof(host) - 1);
  return folder + "/" + kBegin + std::to_string(number) + "." + host + "." +
         std::to_string(getpid());
}

}  // namespace

uint32_t masked_crc32c(std::string_view data) {
  static constexpr std::array<uint32_t, 256> kTable = crc32c_table();
  uint32_t crc = 0xFFFFFFFFU;
  for (const char byte : data) {
    crc = (crc >> 8U) ^ kTable[(crc ^ static_cast<unsigned char>(byte)) & 0xFFU];
  }
  crc = ~crc;
  return ((crc >> 15U) | (crc << 17U)) + 0xA282EAD8U;
}

std::string tf_record(const std::string& data) {
  const std::string length = little_endian(static_cast<uint64_t>(data.size()));
  return length + little_endian(masked_crc32c(length)) + data + little_endian(masked_crc32c(data));
}

EventFile::EventFile(const std::string& folder) : file_(new_path(folder)) {
  file_.append(event(seconds_since_1970(), 0, bytes_field(3, "brain.Event:2")));
}

void EventFile::start_at(int64_t step, double time) {
  const int64_t start = 1;
  file_.append(event(time, step, bytes_field(7, integer_field(1, start))));
}

void EventFile::add(int64_t step, double time, const LogValues& values) {
  std::string summary;
  for (const auto& [name, value] : values) {
    summary += bytes_field(1, bytes_field(1, name) + float_field(2, static_cast<float>(value)));
  }
  add(step, time, summary);
}

void EventFile::add(int64_t step, double time, const std::string& summary) {
  file_.append(event(time, step, bytes_field(5, summary)));
}

std::string text_summary(const std::string& name, const std::string& text) {
  const int64_t string_type = 7, one = 1;
  const std::string shape = bytes_field(2, integer_field(1, one));
  const std::string tensor = integer_field(1, string_type) + bytes_field(2, shape);
  const std::string plugin = bytes_field(1, bytes_field(1, "text"));
  return summary_of(name, bytes_field(9, plugin) + bytes_field(8, tensor + bytes_field(8, text)));
}

std::string histogram_summary(const std::string& name, const at::Tensor& values) {
  const at::Tensor all = values.to(at::kDouble).flatten();
  const at::Tensor finite = all.masked_select(at::isfinite(all));
  std::string histogram;
  if (finite.numel() > 0) {
    const double lowest = finite.min().item<double>(), highest = finite.max().item<double>();
    const int64_t bins = highest > lowest ? 64 : 1;
    const at::Tensor limits =
        at::linspace(lowest, highest, bins + 1, at::kDouble).slice(0, 1).contiguous();
    const at::Tensor counts =
        bins > 1 ? at::histc(finite, bins, lowest, highest) : at::full({1}, finite.numel());
    histogram = double_field(1, lowest) + double_field(2, highest) +
                double_field(3, static_cast<double>(finite.numel())) +
                double_field(4, finite.sum().item<double>()) +
                double_field(5, finite.square().sum().item<double>()) + doubles_field(6, limits) +
                doubles_field(7, counts);
  }
  return summary_of(name, bytes_field(5, histogram));
}

std::string image_summary(const std::string& name, const at::Tensor& pixels) {
  const int64_t rgb = 3;
  return summary_of(
      name, bytes_field(4, integer_field(1, pixels.size(0)) + integer_field(2, pixels.size(1)) +
                               integer_field(3, rgb) + bytes_field(4, as_bitmap(pixels))));
}

}  // namespace lockstep::detail
