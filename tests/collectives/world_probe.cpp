// A program that is linked to no MPI library: prints its rank, the size of its world, and MPI.
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/mpi_session.h>

#include <cstdio>
#include <iostream>
#include <string>

int main() {
  try {
    const lockstep::MpiSession session;
    const std::string version = session.library_version();
    std::cout << "rank " + std::to_string(session.world().rank()) + " of " +
                     std::to_string(session.world().size()) + ", MPI '" +
                     version.substr(0, version.find_first_of(",\n")) + "'\n"
              << std::flush;
    return 0;
  } catch (const lockstep::Error& error) {
    std::cerr << std::string(error.what()) + "\n" << std::flush;
    return static_cast<int>(error.code());
  }
}
