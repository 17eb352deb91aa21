#pragma once

#include <lockstep/collectives/check.h>

#include <string>

namespace lockstep::c {

/// The text of an argument; NULL: none.
inline std::string text_of(const char* text) {
  return text == nullptr ? std::string() : std::string(text);
}

/// Dereferences a pointer. Throws Error for null.
template <typename Pointed>
Pointed& checked(Pointed* pointer, const char* what) {
  LOCKSTEP_CHECK(pointer != nullptr, what, " is NULL");
  return *pointer;
}

}  // namespace lockstep::c
