// Redraws a line of progress that is longer than any terminal of the tests, until the file that it
// is given is there.
#include <lockstep/runtime/progress.h>

#include <chrono>
#include <filesystem>
#include <thread>

int main(int argc, char** argv) {
  if (argc != 2) {
    return 2;
  }
  double now = 0.0;
  lockstep::ProgressOutput output = lockstep::ProgressOutput::standard(true);
  output.clock = [&now] { return now += 1.0; };
  constexpr int64_t total = 1000000;
  lockstep::Progress progress("train", total, output);
  lockstep::Progress::Values values;
  for (const char* name : {"loss", "scale", "gradient norm", "learning rate", "images a second",
                           "validation loss", "accuracy", "memory", "best accuracy so far"}) {
    values.emplace_back(name, 0.4126);
  }
  for (int64_t done = 1; done < total && !std::filesystem::exists(argv[1]); ++done) {
    progress.show(done, values);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  progress.show(total, values);
  return 0;
}
