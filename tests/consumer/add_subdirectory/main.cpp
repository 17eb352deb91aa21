// One library alone, built as part of another project.
#include <ATen/Functions.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/communicator.h>

int main() {
  auto world = lockstep::Communicator::solo();
  const auto tensor = at::ones({4});
  world.all_reduce(tensor).wait();
  LOCKSTEP_CHECK(tensor.sum().item<float>() == 4, "a world of one changed its tensor");
}
