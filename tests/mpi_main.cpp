#include <lockstep/collectives/mpi_session.h>

#include "mpi_world.h"
#include "ranks.h"
#include "seeds.h"

namespace lockstep::testing {
namespace {
Communicator* the_world = nullptr;
}

Communicator& world() {
  return *the_world;
}

}  // namespace lockstep::testing

int main(int argc, char** argv) {
  lockstep::testing::init_tests(&argc, argv);
  lockstep::CommunicatorOptions options;
  options.timeout = std::chrono::seconds(30);
  lockstep::MpiSession session(options);
  lockstep::Communicator world = session.world();
  lockstep::testing::the_world = &world;
  lockstep::testing::seed_every_test(world.rank());
  return lockstep::testing::run_tests(world.rank(), world.size());
}
