#include "doctor/report.h"

#include <algorithm>
#include <cmath>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <ostream>

#include "rank/exit_codes.h"

namespace lockstep::doctor {
namespace {

const char* name_of(Status status) {
  return status == Status::ok        ? "ok"
         : status == Status::skipped ? "-"
         : status == Status::warning ? "warning"
                                     : "FAILURE";
}

std::string plural(size_t count, const std::string& word) {
  return std::to_string(count) + " " + word + (count == 1 ? "" : "s");
}

}  // namespace

void Report::title(const std::string& text) {
  out_ << text << "\n\n";
}

void Report::add(const Row& row) {
  rows_.push_back(row);
  out_ << std::left << std::setw(9) << name_of(row.finding.status) << std::setw(19) << row.name
       << row.finding.what << "\n";
  if (!row.finding.fix.empty()) {
    out_ << std::string(28, ' ') << "fix: " << row.finding.fix << "\n";
  }
  out_ << std::flush;
}

size_t Report::count(Status status) const {
  return static_cast<size_t>(std::count_if(
      rows_.begin(), rows_.end(), [&](const Row& row) { return row.finding.status == status; }));
}

void Report::finish(double seconds) {
  out_ << "\n"
       << count(Status::ok) << " ok, " << plural(count(Status::warning), "warning") << ", "
       << plural(count(Status::failure), "failure") << ", " << count(Status::skipped)
       << " not applicable, " << std::round(seconds) << " s" << std::endl;
}

int Report::exit_code() const {
  return count(Status::failure) > 0 ? launcher::exit_environment : 0;
}

std::string Report::json(const std::vector<RankFacts>& ranks, double seconds) const {
  nlohmann::json rows = nlohmann::json::array();
  for (const Row& row : rows_) {
    rows.push_back(
        {{"check", row.name},
         {"status", row.finding.status == Status::skipped   ? "skipped"
                    : row.finding.status == Status::failure ? "failure"
                                                            : name_of(row.finding.status)},
         {"what", row.finding.what},
         {"fix", row.finding.fix}});
  }
  nlohmann::json facts = nlohmann::json::array();
  for (const RankFacts& rank : ranks) {
    facts.push_back(nlohmann::json::parse(to_json(rank)));
  }
  return nlohmann::json{
             {"exit_code", exit_code()}, {"seconds", seconds}, {"checks", rows}, {"ranks", facts}}
             .dump(1) +
         "\n";
}

}  // namespace lockstep::doctor
