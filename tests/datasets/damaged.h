#pragma once

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "runtime/temporary_folder.h"

namespace lockstep::testing {

/// Passes many damaged copies of a file to `read`, which must read each or throw an Error with the
/// exit code data. Copies are cut, or have bytes that are changed, added or removed.
inline void expect_all_damage_is_refused(const std::string& file, int copies,
                                         const std::function<void(const std::string&)>& read) {
  std::ifstream in(file, std::ios::binary);
  const std::vector<unsigned char> whole{std::istreambuf_iterator<char>(in), {}};
  ASSERT_FALSE(whole.empty()) << file;
  const auto below = [](size_t bound) {
    return static_cast<size_t>(at::randint(static_cast<int64_t>(bound), {}).item<int64_t>());
  };
  const TemporaryFolder folder;
  const std::string name = std::filesystem::path(file).filename().string();
  int refused = 0;
  for (int copy = 0; copy < copies; ++copy) {
    std::vector<unsigned char> bytes = whole;
    // Most formats keep what matters at the beginning.
    const size_t end = copy % 2 == 0 ? bytes.size() : std::min<size_t>(bytes.size(), 128);
    for (size_t change = 0; change <= below(4); ++change) {
      const auto place =
          bytes.begin() + static_cast<std::ptrdiff_t>(below(std::min(end, bytes.size())));
      switch (below(6)) {
        case 0:
          bytes.erase(place, bytes.end());
          break;
        case 1:
          bytes.erase(place);
          break;
        case 2:
          bytes.insert(place, static_cast<unsigned char>(below(256)));
          break;
        case 3:
          *place = below(2) == 0 ? 0xff : 0;
          break;
        default:
          *place = static_cast<unsigned char>(below(256));
      }
      if (bytes.empty()) {
        break;
      }
    }
    const std::string damaged = folder.write(name, bytes);
    try {
      read(damaged);
    } catch (const Error& error) {
      ++refused;
      EXPECT_EQ(error.code(), ExitCode::data) << error.what();
    } catch (const std::exception& error) {
      ADD_FAILURE() << "not an Error: " << error.what();
    }
  }
  EXPECT_GT(refused, copies / 10);
}

}  // namespace lockstep::testing
