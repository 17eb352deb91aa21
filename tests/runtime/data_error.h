#pragma once

#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>

#include <string>

namespace lockstep::testing {

/// The text of the Error that `body` throws; fails the test unless its exit code is `data`.
template <typename Body>
std::string data_error(Body body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "no Error was thrown";
  return "";
}

}  // namespace lockstep::testing
