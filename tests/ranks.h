#pragma once

namespace lockstep::testing {

/// Initialises GoogleTest. Call before anything reads argv.
void init_tests(int* argc, char** argv);

/// Runs all tests as one program of many ranks; main returns the result.
///
/// Fails when `world_size` is not the number in LOCKSTEP_TEST_RANKS, so a test that was started
/// wrongly cannot pass. After each test the ranks compare: one that failed on any rank fails on
/// all, and says which. Rank 0 prints GoogleTest's lines; the failures of the others appear with
/// "[rank r]" before each line. Stops at the first failed test, after which the ranks may be out of
/// step (--gtest_fail_fast=0 goes on).
/// Ranks: all, after MPI is up and before it is finalised; a world of one needs no MPI.
int run_tests(int rank, int world_size);

}  // namespace lockstep::testing
