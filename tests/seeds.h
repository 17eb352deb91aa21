#pragma once

namespace lockstep::testing {

/// Before each test, seeds LibTorch's generator of the host, which LibTorch itself seeds from the
/// clock: a test then draws the same numbers in every run, alone or after others.
///
/// The ranks draw different numbers, and so does each iteration of --gtest_repeat, so
/// `program --gtest_repeat=1000` tells whether a test holds for other numbers, too.
/// Call once, after InitGoogleTest.
void seed_every_test(int rank = 0);

}  // namespace lockstep::testing
