#include <lockstep/amp/layers/norm_types.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace lockstep::detail {

namespace {

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

void strip(std::string_view& text, std::string_view end) {
  if (ends_with(text, end)) {
    text.remove_suffix(end.size());
  }
}

}  // namespace

std::string plain_type_name(const std::string& type_name) {
  std::string_view name = type_name;
  const size_t qualifier = name.find_last_of(".:");
  if (qualifier != std::string_view::npos) {
    name.remove_prefix(qualifier + 1);
  }
  strip(name, "Impl");
  return std::string(name);
}

bool is_norm_type(const std::string& type_name) {
  static constexpr std::array<std::string_view, 6> kNorms = {
      "batchnorm", "layernorm", "groupnorm", "instancenorm", "rmsnorm", "scalenorm"};
  std::string lower = plain_type_name(type_name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  std::string_view name = lower;
  for (const char* dimension : {"1d", "2d", "3d"}) {
    strip(name, dimension);
  }
  return name == "norm" || std::any_of(kNorms.begin(), kNorms.end(), [&](std::string_view norm) {
           return ends_with(name, norm);
         });
}

}  // namespace lockstep::detail
