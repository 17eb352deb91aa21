#pragma once

#include <string>

namespace lockstep::detail {

/// `text`; of a text of more than `limit` bytes the whole words that fit, and "...".
inline std::string shortened(const std::string& text, size_t limit) {
  if (text.size() <= limit) {
    return text;
  }
  const size_t space = text.rfind(' ', limit - 4);
  return (space == std::string::npos ? text.substr(0, limit - 3) : text.substr(0, space + 1)) +
         "...";
}

}  // namespace lockstep::detail
