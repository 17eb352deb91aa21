#pragma once

#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>

#include <string>

namespace lockstep::testing {

/// The message of the lockstep::Error that `body` must throw.
template <typename Body>
std::string error_of(const Body& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "no lockstep::Error was thrown";
  return {};
}

}  // namespace lockstep::testing
