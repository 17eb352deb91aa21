#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <lockstep/checkpointing/snapshot/impl/file_system.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/collectives/impl/plain_tensor.h>
#include <lockstep/runtime/flop_counter.h>
#include <lockstep/runtime/loop/impl/run_log_options.h>
#include <lockstep/runtime/loop/own/event_file.h>
#include <lockstep/runtime/loop/own/layer_norms.h>
#include <lockstep/runtime/memory_use.h>
#include <lockstep/runtime/run_log.h>
#include <lockstep/runtime/trainer.h>
#include <lockstep/runtime/trainer/impl/trainer_impl.h>

#include <chrono>
#include <cstring>
#include <iostream>
#include <optional>
#include <vector>

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double mib(int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

/// In the dtype in which a step's closure multiplies matrices.
double peak_flops_of(const Trainer& trainer) {
  const auto region = trainer.autocast();
  const at::Tensor one = at::ones({1, 1}, trainer.device());
  return measure_peak_flops(trainer.device(), at::mm(one, one).scalar_type());
}

}  // namespace

void RunLogOptions::validate() const {
  detail::require_ranges(detail::rows_of(*this));
}

/// The log of a rank that writes one.
struct RunLog::Writing {
  Writing(const Trainer& trainer, const std::string& folder, const RunLogOptions& options)
      : trainer(trainer), options(options) {
    snapshot::FileSystem::real()->make_folder(folder);
    if (options.jsonl()) {
      json.emplace(folder + "/log.jsonl");
    }
    if (options.csv()) {
      csv.emplace(folder + "/log.csv");
    }
    if (options.tensorboard()) {
      events.emplace(folder);
    }
    flops_per_update = options.flops_per_update();
    if (options.mfu() && flops_per_update == 0.0) {
      counter.emplace();
    }
  }

  /// Values of log(), which belong to the update of a report that may not be known yet.
  struct Pending {
    std::optional<StepReport> report;
    double time;
    detail::LogValues values;
    std::string summary{};  // for TensorBoard alone, in place of values
  };

  void begin(int64_t update);
  void take(const StepReport& report);
  void write_row(const StepReport& report);
  void write(int64_t update, double time, const detail::LogValues& values);
  /// Adds to the last update what the program logs.
  void add(detail::LogValues values, std::string summary);
  void write_pending();
  detail::LogValues values_of(const StepReport& report);
  const detail::StragglerWatch& stragglers() const { return trainer.impl().stragglers; }

  const Trainer& trainer;
  RunLogOptions options;
  std::optional<detail::LogFile> json, csv;
  std::optional<detail::EventFile> events;
  std::function<double()> wait_seconds;
  std::optional<FlopCounter> counter;  // counts in the first window
  double flops_per_update = 0.0;
  double peak_flops = 0.0;

  bool begun = false;
  int64_t first_update = 0;          // this program's rows come after it
  int64_t windows = 0;               // first_update plus the windows since then
  std::optional<StepReport> latest;  // the last closed window
  std::vector<Pending> pending;

  // since the last row
  Clock::time_point since = Clock::now();
  int64_t windows_since = 0;
  double waited_before = 0.0;
  double communication_since = 0.0;
  int64_t comparisons_before = stragglers().comparisons();  // of the ranks' times
};

/// Continues the files after the row of `update`.
void RunLog::Writing::begin(int64_t update) {
  begun = true;
  first_update = windows = update;
  since = Clock::now();
  waited_before = wait_seconds ? wait_seconds() : 0.0;
  for (auto* file : {&json, &csv}) {
    const std::string problem = file->has_value() ? (*file)->keep_until(update) : "";
    if (!problem.empty()) {
      std::cerr << "rows after update " << update << " cannot be removed from the log: " << problem
                << std::endl;
    }
  }
  if (csv && csv->is_empty()) {
    csv->append(detail::kCsvHeader);
  }
  if (events) {
    events->start_at(update + 1, seconds_since_1970());
  }
}

void RunLog::Writing::take(const StepReport& report) {
  const bool first = !begun;
  if (first) {
    const bool updated = report.closes_update() && !report.skipped();
    begin(report.update() - (updated ? 1 : 0));
  }
  if (!report.closes_update() || report.all_out_of_data()) {
    return;
  }
  if (counter) {
    flops_per_update = static_cast<double>(counter->flops());
    counter.reset();
  }
  latest = report;
  ++windows;
  if (!first) {  // the time of the first window is not known
    ++windows_since;
    communication_since += report.exposed_communication_seconds();
  }
  if (windows % options.log_every() == 0) {
    write_row(report);
  }
}

detail::LogValues RunLog::Writing::values_of(const StepReport& report) {
  detail::LogValues values = {
      {"loss", report.loss()},
      {"mean_loss", report.mean_loss()},
      {"learning_rate", report.learning_rate()},
      {"loss_scale", report.scale()},
      {"skipped_updates", static_cast<double>(trainer.scaler_state().skipped)},
      {"gradient_norm", report.grad_norm()},
  };
  const double seconds = std::chrono::duration<double>(Clock::now() - since).count();
  if (windows_since > 0 && seconds > 0.0) {
    const double rate = static_cast<double>(windows_since) / seconds;
    values.emplace_back("updates_per_second", rate);
    if (options.samples_per_update() > 0) {
      values.emplace_back("samples_per_second",
                          rate * static_cast<double>(options.samples_per_update()));
    }
    if (wait_seconds) {
      values.emplace_back("data_wait_share", (wait_seconds() - waited_before) / seconds);
    }
    if (flops_per_update > 0.0 && options.mfu()) {
      values.emplace_back("flops_per_second", rate * flops_per_update);
      values.emplace_back("mfu", rate * flops_per_update / peak_flops);
    }
    values.emplace_back("exposed_communication_share", communication_since / seconds);
  }
  if (stragglers().comparisons() > comparisons_before && stragglers().slowest()) {
    values.emplace_back("slowest_rank", stragglers().slowest()->rank);
    values.emplace_back("slowest_rank_ratio", stragglers().slowest()->ratio);
  }
  if (options.layers()) {
    detail::add_layer_norms(trainer.impl().storage.reducer(), report, values);
  }
  if (const auto host = resident_memory()) {
    values.emplace_back("host_memory_mib", mib(*host));
  }
  if (const auto device = device_memory(trainer.device())) {
    values.emplace_back("device_memory_mib", mib(device->most_allocated));
  }
  return values;
}

void RunLog::Writing::write_row(const StepReport& report) {
  write_pending();
  write(report.update(), seconds_since_1970(), values_of(report));
  since = Clock::now();
  windows_since = 0;
  waited_before = wait_seconds ? wait_seconds() : 0.0;
  communication_since = 0.0;
  comparisons_before = stragglers().comparisons();
}

void RunLog::Writing::write(int64_t update, double time, const detail::LogValues& values) {
  if (json) {
    json->append(detail::json_row(update, time, values));
  }
  if (csv) {
    csv->append(detail::csv_rows(update, time, values));
  }
  if (events) {
    events->add(update, time, values);
  }
}

void RunLog::Writing::write_pending() {
  for (const Pending& each : pending) {
    const int64_t update = each.report ? each.report->update() : first_update;
    if (each.summary.empty()) {
      write(update, each.time, each.values);
    } else {
      events->add(update, each.time, each.summary);
    }
  }
  pending.clear();
}

void RunLog::Writing::add(detail::LogValues values, std::string summary) {
  if (!begun) {
    begin(trainer.updates());
  }
  pending.push_back({latest, seconds_since_1970(), std::move(values), std::move(summary)});
  if (trainer.device().is_cpu()) {
    write_pending();  // by now the host knows the update
  }
}

RunLog::RunLog(const Trainer& trainer, const std::string& folder, const RunLogOptions& options) {
  const Runtime& runtime = trainer.runtime();
  const detail::Agreement agreement(runtime.control());
  double peak = options.peak_flops();
  if (options.mfu() && peak == 0.0) {
    Communicator(runtime.control()).barrier().wait();  // the ranks measure at the same time
    agreement.attempt("measuring the peak of the processors",
                      [&] { peak = peak_flops_of(trainer); });
  }
  agreement.attempt("opening the log in " + folder, [&] {
    options.validate();
    LOCKSTEP_CHECK(!folder.empty(), "RunLog: the folder has no name");
    const TrainerOptions& training = trainer.impl().options;
    LOCKSTEP_CHECK(
        !options.layers() || !(training.shard_optimizer() || training.local_updates()),
        "RunLogOptions::layers(true) does not go with TrainerOptions::",
        training.shard_optimizer() ? "shard_optimizer" : "local_updates",
        ", where no rank has the averaged gradient of a whole parameter; leave one of them out");
    if (options.every_rank()) {
      writing_ = std::make_unique<Writing>(
          trainer, folder + "/rank" + std::to_string(runtime.rank()), options);
    } else if (runtime.is_main()) {
      writing_ = std::make_unique<Writing>(trainer, folder, options);
    }
    if (writing_) {
      writing_->peak_flops = peak;
    }
  });
}

RunLog::~RunLog() {
  try {
    flush();
  } catch (const std::exception& error) {
    std::cerr << "the last values of the log are lost: " << error.what() << std::endl;
  }
}

void RunLog::watch_wait(std::function<double()> seconds) {
  if (writing_) {
    writing_->waited_before = seconds();
    writing_->wait_seconds = std::move(seconds);
  }
}

void RunLog::step(const StepReport& report) {
  if (writing_) {
    writing_->take(report);
  }
}

void RunLog::log(const std::string& name, double value) {
  LOCKSTEP_CHECK(name != "update" && name != "time", "RunLog::log: each row has a \"", name,
                 "\" of its own; choose another name");
  if (writing_) {
    writing_->add({{name, value}}, "");
  }
}

void RunLog::log_text(const std::string& name, const std::string& text) {
  if (writing_ && writing_->events) {
    writing_->add({}, detail::text_summary(name, text));
  }
}

void RunLog::log_histogram(const std::string& name, const at::Tensor& values) {
  const std::string why = detail::why_not_plain(values);
  LOCKSTEP_CHECK(why.empty() && !values.is_complex(), "RunLog::log_histogram(\"", name,
                 "\"): expected a tensor of real numbers; this one ",
                 why.empty() ? "is complex" : why);
  if (writing_ && writing_->events) {
    const c10::AutoGradMode no_grad(false);
    writing_->add({}, detail::histogram_summary(name, values.detach().cpu()));
  }
}

void RunLog::log_image(const std::string& name, const at::Tensor& image) {
  const std::string why = detail::why_not_plain(image);
  const bool fits =
      why.empty() && image.numel() > 0 &&
      (image.dim() == 2 || (image.dim() == 3 && (image.size(0) == 1 || image.size(0) == 3))) &&
      (image.scalar_type() == at::kByte || image.is_floating_point());
  LOCKSTEP_CHECK(
      fits, "RunLog::log_image(\"", name,
      "\"): expected [3, height, width], [1, height, width] or [height, width], uint8 or "
      "floating-point numbers from 0 to 1; this tensor ",
      why.empty() ? c10::str("is ", image.scalar_type(), " ", image.sizes()) : why);
  if (writing_ && writing_->events) {
    const c10::AutoGradMode no_grad(false);
    at::Tensor pixels = image.detach().cpu();
    if (pixels.is_floating_point()) {
      pixels = pixels.to(at::kFloat).nan_to_num().clamp(0.0, 1.0).mul(255.0).round().to(at::kByte);
    }
    const at::Tensor colours = pixels.dim() == 2 ? pixels.unsqueeze(0) : pixels;
    const auto rows = colours.expand({3, colours.size(1), colours.size(2)}).permute({1, 2, 0});
    writing_->add({}, detail::image_summary(name, rows));
  }
}

void RunLog::flush() {
  if (writing_) {
    writing_->write_pending();
  }
}

}  // namespace lockstep
