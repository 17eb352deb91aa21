// snapshot: saves and loads 176 MB of weights and moments on one rank; ours and the peers in turn.
// A bound is the plain file with the same bytes, or for the stall of an asynchronous save the copy.
// Files come from the page cache when they are read.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <lockstep/checkpointing/snapshot/impl/writer.h>
#include <lockstep/checkpointing/snapshot/load.h>
#include <lockstep/checkpointing/snapshot/snapshot.h>
#include <torch/serialize.h>

#include <ftw.h>

#include <cstdio>
#include <functional>
#include <iostream>
#include <string>
#include <vector>

#include "plain_file.h"
#include "recorder.h"

namespace lockstep::benchmarks {
namespace {

constexpr int tensors = 42, repetitions = 5;
constexpr int64_t numel = 1 << 20;

Named make_tensors() {
  Named all;
  for (int i = 0; i < tensors; ++i) {
    all.emplace_back("layer" + std::to_string(i) + ".weight", at::randn({1024, numel / 1024}));
  }
  return all;
}

snapshot::Content content_of(const Named& all) {
  snapshot::Content content;
  for (const auto& [name, tensor] : all) {
    content.add("model", name, tensor);
  }
  return content;
}

std::vector<at::Tensor> values_of(const Named& all) {
  std::vector<at::Tensor> values;
  for (const auto& [name, tensor] : all) {
    values.push_back(tensor);
  }
  return values;
}

struct Contender {
  Series series;
  std::function<void(int turn)> run;
  std::function<void()> settle = [] {};  // not timed
};

/// The first turn is not counted.
void measure(std::vector<Contender> contenders) {
  for (int turn = 0; turn <= repetitions; ++turn) {
    for (Contender& contender : contenders) {
      if (turn > 0) {
        contender.series.begin();
      }
      contender.run(turn);
      if (turn > 0) {
        contender.series.end();
      }
      contender.settle();
    }
  }
  for (const Contender& contender : contenders) {
    contender.series.write();
  }
}

void measure_all(const std::string& folder) {
  const Named all = make_tensors();
  const Named targets = make_tensors();
  const Named copies = make_tensors();
  const PlainFile plain(folder + "/plain");
  const std::string zip = folder + "/torch.pt";
  const auto options = snapshot::WriterOptions().keep(snapshot::KeepOptions().last(1));
  snapshot::Writer writer(Communicator::solo(), folder + "/run", options);
  snapshot::Writer background(Communicator::solo(), folder + "/background", options);
  const auto newest = [&] {
    return folder + "/run/step-00000000000" + std::to_string(repetitions + 1);
  };
  measure({{{"save 176 MB", "ours"}, [&](int turn) { writer.save(content_of(all), turn + 1); }},
           {{"save 176 MB", "bound"}, [&](int) { plain.write(all); }},
           {{"save 176 MB", "torch::save"}, [&](int) { torch::save(values_of(all), zip); }}});
  measure({{{"load 176 MB", "ours"},
            [&](int) { load_tensors(Snapshot(newest()).section("model"), targets); }},
           {{"load 176 MB", "bound"}, [&](int) { plain.read(targets); }},
           {{"load 176 MB", "torch::load"}, [&](int) {
              std::vector<at::Tensor> loaded;
              torch::load(loaded, zip);
            }}});
  measure({{{"stall 176 MB", "ours"},
            [&](int turn) { background.start(content_of(all), turn + 1); },
            [&] { background.wait(); }},
           {{"stall 176 MB", "bound"}, [&](int) {
              for (size_t i = 0; i < all.size(); ++i) {
                copies[i].second.copy_(all[i].second);
              }
            }}});
}

}  // namespace
}  // namespace lockstep::benchmarks

int main() {
  at::set_num_threads(1);
  std::string folder = "/tmp/lockstep_bench_XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) {
    std::cerr << "cannot make a folder in /tmp\n";
    return 3;
  }
  int code = 0;
  try {
    lockstep::benchmarks::measure_all(folder);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    code = 1;
  }
  nftw(
      folder.c_str(),
      [](const char* path, const struct stat*, int, struct FTW*) { return std::remove(path); }, 8,
      FTW_DEPTH | FTW_PHYS);
  return code;
}
