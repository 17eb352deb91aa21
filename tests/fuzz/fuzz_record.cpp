#include <exception>

#include "fuzz_file.h"
#include "predict/forecast.h"

/// What `lockstep predict` reads, and computes of it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep::launcher;
  return lockstep::testing::read_as_file(data, size, [](const std::string& path) {
    Network network;
    network.node_rate = network.link_rate = 1e9;
    try {
      network = Network::read(path);
    } catch (const std::exception&) {
    }
    try {
      const StepRecord step = StepRecord::read(path);
      Forecast::of(step.with_buckets(1 << 26, 1 << 26), network, 64, 1);
    } catch (const std::exception&) {
    }
  });
}
