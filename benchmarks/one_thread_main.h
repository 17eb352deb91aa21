#pragma once

#include <ATen/Parallel.h>

#include <exception>
#include <iostream>
#include <string>

namespace lockstep::benchmarks {

/// The main of a program that measures on one thread: `PROGRAM [SECONDS]`.
inline int one_thread_main(int argc, char** argv, void (*measure)(double seconds)) {
  at::set_num_threads(1);
  try {
    measure(argc > 1 ? std::stod(argv[1]) : 1.0);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << argv[0] << ": " << error.what() << "\n";
    return 1;
  }
}

}  // namespace lockstep::benchmarks
