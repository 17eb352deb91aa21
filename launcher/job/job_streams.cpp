#include "job/job_streams.h"

#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <iostream>
#include <utility>

namespace lockstep::launcher {
namespace {

using std::chrono::milliseconds;

bool are_one_file(int a, int b) {
  struct stat first = {}, second = {};
  return fstat(a, &first) == 0 && fstat(b, &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

/// Whether a signal that asks the launcher to end waits for its reader.
bool is_asked_to_end() {
  sigset_t waiting;
  sigpending(&waiting);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    if (sigismember(&waiting, signal) == 1) {
      return true;
    }
  }
  return false;
}

}  // namespace

/// Collects text until it is flushed, then adds it to a queue: of std::cerr, which is flushed after
/// each piece, only whole lines.
class JobStreams::Buffer : public std::streambuf {
 public:
  Buffer(std::shared_ptr<QueuedWriter> writer, bool whole_lines, std::function<void()> before)
      : writer_(std::move(writer)), whole_lines_(whole_lines), before_(std::move(before)) {}

  void add_rest() { writer_->add(std::exchange(text_, {})); }

 protected:
  int_type overflow(int_type letter) override {
    if (letter != traits_type::eof()) {
      text_ += static_cast<char>(letter);
    }
    return traits_type::not_eof(letter);
  }
  std::streamsize xsputn(const char* letters, std::streamsize count) override {
    text_.append(letters, static_cast<size_t>(count));
    return count;
  }
  int sync() override {
    before_();
    const size_t end = whole_lines_ ? text_.rfind('\n') + 1 : text_.size();
    writer_->add(text_.substr(0, end));
    text_.erase(0, end);
    return 0;
  }

 private:
  std::shared_ptr<QueuedWriter> writer_;
  bool whole_lines_;
  std::function<void()> before_;
  std::string text_;
};

JobStreams::JobStreams()
    : out_writer_(std::make_shared<QueuedWriter>(STDOUT_FILENO, "standard output")),
      error_writer_(are_one_file(STDOUT_FILENO, STDERR_FILENO)
                        ? out_writer_
                        : std::make_shared<QueuedWriter>(STDERR_FILENO, "standard error")),
      out_(std::make_unique<Buffer>(out_writer_, /*whole_lines=*/false,
                                    [this] { look_at_reader(); })),
      error_(std::make_unique<Buffer>(error_writer_, /*whole_lines=*/true, [] {})),
      out_before_((std::cout.flush(), std::cout.rdbuf(out_.get()))),
      error_before_((std::cerr.flush(), std::cerr.rdbuf(error_.get()))) {}

JobStreams::~JobStreams() {
  if (!is_finished_) {
    finish(kPatience);
  }
  std::cout.rdbuf(out_before_);
  std::cerr.rdbuf(error_before_);
}

void JobStreams::look_at_reader() {
  const std::string problem = out_writer_->problem();
  if (!problem.empty() && !is_told_) {
    is_told_ = true;
    std::cerr << "lockstep: standard output cannot be written any more (" << problem
              << "); the job goes on, and what its ranks print is in the files of --log-dir alone"
              << std::endl;
  }
}

void JobStreams::finish(std::optional<milliseconds> patience) {
  is_finished_ = true;
  std::cout.flush();
  error_->add_rest();
  for (const auto& writer : {out_writer_, error_writer_}) {
    size_t left = writer->waiting();
    auto since = QueuedWriter::Clock::now();
    while (!writer->wait(milliseconds(50)) && !is_asked_to_end()) {
      const auto now = QueuedWriter::Clock::now();
      if (std::exchange(left, writer->waiting()) != writer->waiting()) {
        since = now;
      }
      if (patience && now - since >= *patience) {
        break;
      }
    }
    look_at_reader();
  }
}

}  // namespace lockstep::launcher
