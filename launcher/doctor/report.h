#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "doctor/finding.h"
#include "doctor/rank_facts.h"

namespace lockstep::doctor {

/// Prints rows when they are added, aligned, then one line of totals.
class Report {
 public:
  explicit Report(std::ostream& out) : out_(out) {}

  void title(const std::string& text);
  void add(const Row& row);
  /// "23 ok, 1 warning, 0 failures, 4 not applicable, 12 s"
  void finish(double seconds);
  /// 3 if a row is a failure, else 0.
  int exit_code() const;

  /// Rows and facts as JSON.
  std::string json(const std::vector<RankFacts>& ranks, double seconds) const;

 private:
  size_t count(Status status) const;

  std::ostream& out_;
  std::vector<Row> rows_;
};

}  // namespace lockstep::doctor
