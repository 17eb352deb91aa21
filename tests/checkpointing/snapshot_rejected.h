#pragma once

#include <gmock/gmock.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>

#include <functional>
#include <string>

namespace lockstep::testing {

/// The message of the Error that `action` throws; fails the test if it throws none, or one that
/// does not say "snapshot unusable" by its exit code.
inline std::string rejection_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::snapshot) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

}  // namespace lockstep::testing
