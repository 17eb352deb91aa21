#include "job_output.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <ostream>
#include <stdexcept>

#include <lockstep/collectives/core/rank_names.h>

#include "exit_codes.h"

namespace lockstep::launcher {

namespace {

constexpr size_t kept_lines = 10;

std::string describe_code(int code) {
  const char* signal = code > 128 ? sigabbrev_np(code - 128) : nullptr;
  return signal ? std::string("was killed by SIG") + signal
                : "ended with exit code " + std::to_string(code);
}

/// "frame #12: at::_ops::addmm::call(...) + 0x1b5 (0x7f... in libtorch_cpu.so)", and what LibTorch
/// writes before the first.
bool is_of_backtrace(const std::string& line) {
  return line.rfind("frame #", 0) == 0 || line.rfind("Exception raised from ", 0) == 0;
}

}  // namespace

JobOutput::JobOutput(std::ostream& merged, bool terminal, bool tag, std::string log_dir)
    : merged_(merged), terminal_(terminal), tag_(tag), log_dir_(std::move(log_dir)) {
  if (log_dir_.empty()) {
    return;
  }
  std::error_code error;
  std::filesystem::create_directories(log_dir_, error);
  if (error) {
    throw std::runtime_error("cannot make the log folder " + log_dir_ + ": " + error.message());
  }
}

void JobOutput::add(const RankLine& line) {
  switch (line.kind) {
    case RankLine::Kind::partial:
      beginnings_[line.rank] += line.text;
      return;
    case RankLine::Kind::redraw:
      if (terminal_) {
        print(line.rank, line.text, true);
      }
      return;
    case RankLine::Kind::line: {
      const std::string text = beginnings_[line.rank] + line.text;
      beginnings_[line.rank].clear();
      print(line.rank, text, false);
      keep(line.rank, text);
      return;
    }
    case RankLine::Kind::status:
    case RankLine::Kind::stopped:
      if (const int code = std::atoi(line.text.c_str()); code != 0) {
        failures_.push_back({line.rank, code, line.kind == RankLine::Kind::stopped});
      }
  }
}

void JobOutput::add_other(const std::string& line) {
  if (failures_.empty()) {
    merged_ << line << "\n" << std::flush;
  }
}

std::optional<RankFailure> JobOutput::failure() const {
  const RankFailure* chosen = nullptr;
  const auto weight = [](const RankFailure& failure) {
    return failure.stopped ? 0 : failure.code == exit_peer_lost ? 1 : 2;
  };
  for (const RankFailure& failure : failures_) {
    if (chosen == nullptr || weight(failure) > weight(*chosen)) {
      chosen = &failure;
    }
  }
  return chosen ? std::optional<RankFailure>(*chosen) : std::nullopt;
}

std::string JobOutput::describe(const RankFailure& failure) const {
  const std::deque<std::string> lines = last_lines(failure.rank);
  std::vector<int> ranks;
  for (const RankFailure& other : failures_) {
    const bool alike = other.code == failure.code || (other.stopped && !lines.empty());
    if (other.rank == failure.rank || (alike && last_lines(other.rank) == lines)) {
      ranks.push_back(other.rank);
    }
  }
  std::sort(ranks.begin(), ranks.end());
  const bool alone = ranks.size() == 1;
  std::string text = detail::rank_names(ranks) + " " + describe_code(failure.code);
  if (lines.empty()) {
    return text + " and printed nothing\n";
  }
  text += alone ? "; its last lines:\n" : "; the last lines of each:\n";
  for (const std::string& line : alone ? last_lines_.at(failure.rank) : lines) {
    text += "  | " + line + "\n";
  }
  if (!log_dir_.empty()) {
    text += "all of them: " + log_dir_ + "/rank-" + std::to_string(failure.rank) + ".log\n";
  }
  return text;
}

void JobOutput::print(int rank, const std::string& text, bool redraw) {
  if (redrawn_) {
    merged_ << "\r\x1b[K";
  }
  if (tag_) {
    merged_ << "[" << rank << "] ";
  }
  merged_ << text << (redraw ? "" : "\n") << std::flush;
  redrawn_ = redraw;
}

/// Without "rank 1: " before a line of that rank, so that ranks can be compared.
std::deque<std::string> JobOutput::last_lines(int rank) const {
  const auto kept = last_lines_.find(rank);
  std::deque<std::string> lines;
  if (kept != last_lines_.end()) {
    lines = kept->second;
  }
  const std::string own = "rank " + std::to_string(rank) + ": ";
  for (std::string& line : lines) {
    if (line.rfind(own, 0) == 0) {
      line.erase(0, own.size());
    }
  }
  return lines;
}

void JobOutput::keep(int rank, const std::string& text) {
  if (!is_of_backtrace(text)) {
    auto& lines = last_lines_[rank];
    lines.push_back(text);
    if (lines.size() > kept_lines) {
      lines.pop_front();
    }
  }
  if (!log_dir_.empty()) {
    log(rank) << text << "\n" << std::flush;
  }
}

std::ofstream& JobOutput::log(int rank) {
  std::ofstream& file = logs_[rank];
  if (!file.is_open()) {
    file.open(log_dir_ + "/rank-" + std::to_string(rank) + ".log");
  }
  return file;
}

}  // namespace lockstep::launcher
