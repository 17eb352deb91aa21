#include <lockstep/inputs/exported/archive/json_values.h>

#include <limits>
#include <nlohmann/json.hpp>

namespace lockstep::exported {

int64_t integer(const nlohmann::json& value) {
  if (!value.is_number_integer() ||
      (value.is_number_unsigned() &&
       value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))) {
    malformed("a value of type ", value.type_name(), " is not an integer of 64 bits");
  }
  return value.get<int64_t>();
}

double floating(const nlohmann::json& value) {
  if (value.is_number()) {
    return value.get<double>();
  }
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const auto text = value.get<std::string>();
  if (text != "Infinity" && text != "-Infinity" && text != "NaN") {
    malformed("'", text, "' is not a number");
  }
  return text == "NaN"        ? std::numeric_limits<double>::quiet_NaN()
         : text == "Infinity" ? infinity
                              : -infinity;
}

at::ScalarType scalar_type(const nlohmann::json& value) {
  const int64_t number = integer(value);
  if (number >= 1 && number <= 12) {  // BYTE ... BOOL, in the order of at::ScalarType
    return static_cast<at::ScalarType>(number - 1);
  }
  switch (number) {
    case 13:
      return at::kBFloat16;
    case 28:
      return at::ScalarType::UInt16;
    case 29:
      return at::ScalarType::Float8_e4m3fn;
    case 30:
      return at::ScalarType::Float8_e5m2;
    case 31:
      return at::ScalarType::Float8_e4m3fnuz;
    case 32:
      return at::ScalarType::Float8_e5m2fnuz;
    default:
      malformed("unknown dtype ", number);
  }
}

c10::MemoryFormat memory_format(const nlohmann::json& value) {
  switch (integer(value)) {
    case 1:
      return c10::MemoryFormat::Contiguous;
    case 2:
      return c10::MemoryFormat::ChannelsLast;
    case 3:
      return c10::MemoryFormat::ChannelsLast3d;
    case 4:
      return c10::MemoryFormat::Preserve;
    default:
      malformed("unknown memory format ", integer(value));
  }
}

c10::Device device_of(const nlohmann::json& value) {
  const auto type = value.at("type").get<std::string>();
  c10::Device device = c10::kCPU;
  try {
    device = c10::Device(type);
  } catch (const c10::Error&) {
    malformed("unknown device '", type, "'");
  }
  const auto index = value.find("index");
  if (index != value.end() && !index->is_null()) {
    const int64_t number = integer(*index);
    if (number < 0 || number > std::numeric_limits<c10::DeviceIndex>::max()) {
      malformed("unknown device index ", number);
    }
    device.set_index(static_cast<c10::DeviceIndex>(number));
  }
  return device;
}

std::pair<std::string, const nlohmann::json*> alternative(const nlohmann::json& value) {
  if (!value.is_object() || value.size() != 1) {
    malformed("a union must be an object with one entry, and this is ", value.type_name(), " with ",
              value.size());
  }
  return {value.begin().key(), &value.begin().value()};
}

}  // namespace lockstep::exported
