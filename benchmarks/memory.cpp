// memory WIRE ACCUMULATE [MODE [MODEL]]: the most memory that a Trainer takes on this rank, beside
// what its arena must hold. WIRE: fp16 or fp32. MODE: plain, sharded (shard_optimizer) or shared
// (with share_weights and construct() too). MODEL: mlp, which is all parameters and has hardly any
// activations, or another workload.
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/trainer.h>

#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "models.h"
#include "recorder.h"

namespace lockstep::benchmarks {
namespace {

/// The value of a line of /proc/self/status such as "VmHWM:  123 kB", in bytes.
int64_t status_bytes(const std::string& key) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    int64_t kilobytes = 0;
    if (words >> name >> kilobytes && name == key) {
      return kilobytes * 1024;
    }
  }
  throw Error("/proc/self/status has no line " + key);
}

/// What other ranks hold of the memory that is shared with them: resident here too, but theirs to
/// count. Each rank has its proportion of a page.
int64_t bytes_of_others() {
  std::ifstream file("/proc/self/smaps");
  int64_t kilobytes = 0;
  bool shared = false;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string first, second;
    words >> first >> second;
    if (first.find('-') != std::string::npos) {  // a mapping: addresses, then permissions
      // A view of the node's weights is private until it is written.
      shared = second.back() == 's' || line.find("memfd:") != std::string::npos;
    } else if (shared && first == "Rss:") {
      kilobytes += std::stoll(second);
    } else if (shared && first == "Pss:") {
      kilobytes -= std::stoll(second);
    }
  }
  return kilobytes * 1024;
}

/// The highest resident memory of this process since begin(), above what it had then.
class Peak {
 public:
  void begin() {
    std::ofstream("/proc/self/clear_refs") << "5";
    start_ = status_bytes("VmRSS:") - bytes_of_others();
  }
  int64_t bytes() const { return status_bytes("VmHWM:") - bytes_of_others() - start_; }

 private:
  int64_t start_ = 0;
};

/// Builds and trains the model and returns what it took.
Series train(Runtime& runtime, const std::string& model, const std::string& wire, int accumulate,
             const std::string& mode) {
  const auto dtype = wire == "fp16" ? c10::ScalarType::Half : c10::ScalarType::Float;
  Series series(model, wire);
  Peak peak;
  peak.begin();
  Workload workload;
  const auto make = [&] {
    workload = make_workload(model);
    return workload.module;
  };
  mode == "shared" ? runtime.construct(make) : make();
  Trainer trainer(runtime, workload.module, AdamW(1e-4),
                  TrainerOptions()
                      .precision(Precision::O0().wire(dtype))
                      .accumulate(accumulate)
                      .shard_optimizer(mode != "plain")
                      .share_weights(mode == "shared"));
  for (int i = 0; i < 3 * accumulate; ++i) {
    workload.next_batch();
    trainer.step([&] { return Loss(workload.loss()); });
  }
  series.note("peak", peak.bytes());
  const Trainer::Memory arena = trainer.memory();
  series.note("arena",
              arena.weights + arena.masters + arena.gradients + arena.accumulators + arena.moments);
  series.note("bucket", kHostBucketBytes);
  series.note("parameters", count_parameters(*workload.module));
  return series;
}

}  // namespace
}  // namespace lockstep::benchmarks

int main(int argc, char** argv) {
  if (argc < 3 || argc > 5) {
    std::cerr << "usage: " << argv[0] << " fp16|fp32 ACCUMULATE [plain|sharded|shared [MODEL]]\n";
    return 2;
  }
  return lockstep::run(argc, argv, [&](lockstep::Runtime& runtime) {
    using lockstep::benchmarks::train;
    const std::string mode = argc > 3 ? argv[3] : "plain";
    train(runtime, "mlp-small", argv[1], std::stoi(argv[2]),
          mode);  // brings the libraries' pages in
    train(runtime, argc > 4 ? argv[4] : "mlp", argv[1], std::stoi(argv[2]), mode).write();
  });
}
