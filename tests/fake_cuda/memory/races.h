#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "clock.h"

/// Finds two accesses of one place that no event orders, by vector clocks.
namespace fake_cuda {

/// Who accesses memory: one piece of work.
struct Actor {
  uint32_t lane = 0;
  uint64_t number = 0;
  const Clock* before = nullptr;  // what is ordered before this piece
  const char* what = "";          // lives as long as the process
};

/// The lane of all threads of the program: one clock, so that no false alarm comes from a missing
/// knowledge of the program's own locks.
inline constexpr uint32_t kHostLane = 0;
/// A new lane; the name stands in messages ("stream 3", "node 7 of graph 2"). A node's lane serves
/// all launches of its graph, with a higher number each time; a chain of nodes may share a lane.
uint32_t new_lane(const std::string& name);
std::string name_of_lane(uint32_t lane);
/// The name of a piece for a message: C++ names are written out.
std::string readable(const char* what);

/// To the standard error, past stdio: the program may have touched memory within a function of it.
void print_line(const std::string& text);
/// Whether FAKE_CUDA_RACES=1.
bool races_are_checked();
/// Pieces of one lane are ordered by their numbers, also if `before` does not say so. Prints the
/// first 20 races that it finds: both pieces of work, both lanes, the address, the allocation.
/// Threads: the device's thread and threads of the program.
void check_access(const Actor& actor, const void* memory, size_t bytes, bool writes);
/// Prints a race that something else found, and counts it.
void report_race(const std::string& text);
/// The memory is given back or new: earlier accesses no longer count. Memory.cpp calls it itself.
/// It hides nothing: no address is given out twice, and a caching allocator that gives a block to
/// another stream calls no function of CUDA, so that the accesses of both streams are compared.
void forget_accesses(const void* memory, size_t bytes);
/// The number of races so far.
long races_found();

}  // namespace fake_cuda
