#include <lockstep/checkpointing/snapshot/async_writer.h>
#include <lockstep/checkpointing/snapshot/background_task.h>
#include <lockstep/checkpointing/snapshot/save_job.h>
#include <lockstep/checkpointing/snapshot/shadow_memory.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <iostream>
#include <utility>

namespace lockstep::snapshot {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

struct AsyncWriter::Impl {
  enum class Phase { writing, committing };

  RunFolder folder;
  ShadowMemory shadow;
  std::optional<SaveJob> job;
  Phase phase = Phase::writing;
  BackgroundTask task;  // last: it ends before what it works on

  void start(SaveJob planned) {
    job.emplace(std::move(planned));
    phase = Phase::writing;
    task.start([this] { job->write(); });
  }

  std::optional<SaveReport> advance() {
    if (!job) {
      return std::nullopt;
    }
    task.join();
    if (phase == Phase::writing && job->agree()) {
      phase = Phase::committing;
      task.start([this] { job->commit(); });
      return std::nullopt;
    }
    SaveReport report = job->finish();
    job.reset();
    return report;
  }

  std::optional<SaveReport> wait() {
    std::optional<SaveReport> report;
    while (job) {
      report = advance();
    }
    return report;
  }
};

AsyncWriter::AsyncWriter(Communicator ranks, std::string folder, WriterOptions options)
    : impl_(new Impl{
          RunFolder(std::move(ranks), std::move(folder), std::move(options)), {}, {}, {}, {}}) {}

AsyncWriter::~AsyncWriter() {
  if (std::uncaught_exceptions() > 0) {
    return;
  }
  try {
    const auto report = wait();
    if (report && report->error) {
      std::cerr << *report->error << std::endl;
    }
  } catch (const std::exception& error) {
    std::cerr << "the last snapshot was not completed: " << error.what() << std::endl;
  }
}

AsyncWriter::Started AsyncWriter::save(const Content& content, int64_t step,
                                       std::optional<double> metric) {
  Started started;
  const auto begin = Clock::now();
  started.previous = wait();
  started.waited_seconds = seconds_since(begin);
  SaveJob job(impl_->folder, content, step, metric);
  const auto planned = Clock::now();
  all_or_none(impl_->folder.ranks(), "copying what is to be saved", [&] {
    impl_->shadow.replace_by_copies(job.planned());
    return "";
  });
  started.copied_seconds = seconds_since(planned);
  impl_->start(std::move(job));
  return started;
}

bool AsyncWriter::is_pending() const {
  return impl_->job.has_value();
}

bool AsyncWriter::is_ready() const {
  return impl_->task.is_done();
}

std::optional<SaveReport> AsyncWriter::advance() {
  return impl_->advance();
}

std::optional<SaveReport> AsyncWriter::poll() {
  if (!is_pending()) {
    return std::nullopt;
  }
  const std::string mine = is_ready() ? "y" : "n";
  const std::vector<std::string> all = impl_->folder.ranks().all_gather_bytes(mine);
  const bool ready =
      std::all_of(all.begin(), all.end(), [](const auto& word) { return word == "y"; });
  return ready ? advance() : std::nullopt;
}

std::optional<SaveReport> AsyncWriter::wait() {
  return impl_->wait();
}

const std::string& AsyncWriter::run() const {
  return impl_->folder.options().run();
}

}  // namespace lockstep::snapshot
