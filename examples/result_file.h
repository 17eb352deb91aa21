#pragma once

#include <lockstep/collectives/check.h>
#include <lockstep/runtime/progress.h>
#include <lockstep/runtime/runtime.h>
#include <lockstep/runtime/table.h>
#include <lockstep/runtime/trainer.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <torch/types.h>

#include <chrono>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

/// Seconds since it was made.
class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// The largest resident set that any rank had, in MiB. Every rank.
inline double peak_memory_mib(const lockstep::Runtime& runtime) {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const torch::Tensor peak =
      torch::full({1}, static_cast<double>(usage.ru_maxrss) / 1024.0, torch::kDouble);
  lockstep::Communicator(runtime.control()).all_reduce(peak, lockstep::ReduceOp::max()).wait();
  return peak.item<double>();
}

/// The numbers a run ends with: rank 0 prints them as a table and writes them as JSON.
class ResultFile {
 public:
  ResultFile(const lockstep::Runtime& runtime, std::string path)
      : is_main_(runtime.is_main()), path_(std::move(path)) {}

  void add(const std::string& name, double value) {
    table_.row({name, lockstep::format_number(value)});
    json_[name] = value;
  }

  /// What a training took. Every rank.
  void add_training(const lockstep::Trainer& trainer, double seconds, double waited_for_data) {
    add("training seconds", seconds);
    add("waited for data, s", waited_for_data);
    add("updates", static_cast<double>(trainer.updates()));
    add("skipped updates", static_cast<double>(trainer.scaler_state().skipped));
    add("loss scale", trainer.loss_scale());
    add("peak memory of a rank, MiB", peak_memory_mib(trainer.runtime()));
    add("ranks", trainer.runtime().size());
  }

  void write() const {
    if (!is_main_) {
      return;
    }
    for (size_t slash = path_.find('/', 1); slash != std::string::npos;
         slash = path_.find('/', slash + 1)) {
      mkdir(path_.substr(0, slash).c_str(), 0777);
    }
    std::ofstream file(path_);
    file << json_.dump(2) << "\n";
    LOCKSTEP_CHECK_CODE(file.flush().good(), lockstep::ExitCode::environment,
                        "rank 0: cannot write ", path_, "; choose another --out");
    std::cout << table_.text() << "written: " << path_ << std::endl;
  }

 private:
  bool is_main_;
  std::string path_;
  lockstep::Table table_{{"result", "value"}};
  nlohmann::ordered_json json_;
};
