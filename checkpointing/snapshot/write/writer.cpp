#include <lockstep/checkpointing/snapshot/impl/save_job.h>
#include <lockstep/checkpointing/snapshot/impl/writer.h>
#include <lockstep/checkpointing/snapshot/write/background_task.h>
#include <lockstep/checkpointing/snapshot/write/shadow_memory.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/seconds_since.h>

#include <chrono>
#include <exception>
#include <iostream>
#include <utility>

namespace lockstep::snapshot {
namespace {

using Clock = std::chrono::steady_clock;

}  // namespace

struct Writer::Impl {
  enum class Phase { writing, committing };

  RunFolder folder;
  ShadowMemory shadow;
  std::optional<SaveJob> job;
  Phase phase = Phase::writing;
  BackgroundTask task;  // last: destroyed before the members that it uses

  void start(SaveJob planned) {
    job.emplace(std::move(planned));
    phase = Phase::writing;
    task.start([this] { job->write(); });
  }

  std::optional<SaveReport> advance() {
    if (!job) {
      return std::nullopt;
    }
    try {
      task.join();
    } catch (const std::exception&) {
      job->note_failure(std::current_exception());  // the other ranks wait for the agreement
    }
    if (phase == Phase::writing && job->agree()) {
      phase = Phase::committing;
      task.start([this] { job->commit(); });
      return std::nullopt;
    }
    SaveReport report = job->finish();
    job.reset();
    return report;
  }
};

Writer::Writer(Communicator ranks, std::string folder, WriterOptions options)
    : impl_(new Impl{
          RunFolder(std::move(ranks), std::move(folder), std::move(options)), {}, {}, {}, {}}) {}

Writer::~Writer() {
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

SaveReport Writer::save(const Content& content, const SnapshotId& id,
                        const std::optional<MetricValue>& metric) {
  SaveJob job(impl_->folder, content, id, metric);
  job.write();
  if (job.agree()) {
    job.commit();
  }
  SaveReport report = job.finish();
  if (report.error) {
    throw Error(*report.error, report.code, report.ranks);
  }
  return report;
}

Writer::Started Writer::start(const Content& content, const SnapshotId& id,
                              const std::optional<MetricValue>& metric) {
  Started started;
  const auto begin = Clock::now();
  started.previous = wait();
  started.waited_seconds = lockstep::detail::seconds_since(begin);
  SaveJob job(impl_->folder, content, id, metric);
  const auto planned = Clock::now();
  impl_->folder.agreement().attempt("copying what is to be saved",
                                    [&] { impl_->shadow.replace_by_copies(job.planned()); });
  started.copied_seconds = lockstep::detail::seconds_since(planned);
  impl_->start(std::move(job));
  return started;
}

bool Writer::is_pending() const {
  return impl_->job.has_value();
}

bool Writer::is_phase_done() const {
  return is_pending() && impl_->task.is_done();
}

std::optional<SaveReport> Writer::advance() {
  return impl_->advance();
}

std::optional<SaveReport> Writer::poll() {
  if (!is_pending() || impl_->folder.agreement().any(!is_phase_done())) {
    return std::nullopt;
  }
  return advance();
}

std::optional<SaveReport> Writer::wait() {
  std::optional<SaveReport> report;
  while (is_pending()) {
    report = advance();
  }
  return report;
}

RunFolder& Writer::folder() {
  return impl_->folder;
}

}  // namespace lockstep::snapshot
