#pragma once

#include <algorithm>
#include <cstdio>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "doctor/finding.h"
#include "doctor/rank_facts.h"

// Helpers that the checks of facts share.

namespace lockstep::doctor {

using Ranks = std::vector<RankFacts>;

constexpr int64_t kMiB = int64_t{1} << 20;

template <typename... Parts>
inline std::string text(const Parts&... parts) {
  std::ostringstream out;
  out.precision(3);
  (out << ... << parts);
  return out.str();
}

inline Finding ok(const std::string& what) {
  return {Status::ok, what, ""};
}
inline Finding skipped(const std::string& what) {
  return {Status::skipped, what, ""};
}
inline Finding warning(const std::string& what, const std::string& fix) {
  return {Status::warning, what, fix};
}
inline Finding failure(const std::string& what, const std::string& fix) {
  return {Status::failure, what, fix};
}

inline std::string count_of(size_t count, const std::string& thing) {
  return text(count, " ", thing, count == 1 ? "" : "s");
}

/// 13.0 for 13000
inline std::string cuda_text(int version) {
  return text(version / 1000, ".", version % 1000 / 10);
}
/// 2.28.9 for 22809
inline std::string nccl_text(int version) {
  return text(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

inline std::string size_text(int64_t bytes) {
  return bytes < 0              ? "unlimited"
         : bytes >= 1024 * kMiB ? text(static_cast<double>(bytes) / (1024.0 * kMiB), " GiB")
         : bytes >= kMiB        ? text(bytes / kMiB, " MiB")
                                : text(bytes, " bytes");
}

inline std::string who(const RankFacts& rank) {
  return text("rank ", rank.rank, " (", rank.host, ")");
}

/// The first rank whose value differs from rank 0's; null: all are equal.
inline const RankFacts* different(const Ranks& ranks, std::string RankFacts::*value) {
  const auto found = std::find_if(ranks.begin(), ranks.end(), [&](const RankFacts& rank) {
    return rank.*value != ranks.front().*value;
  });
  return found == ranks.end() ? nullptr : &*found;
}

inline const RankFacts* first_with(const Ranks& ranks,
                                   const std::function<bool(const RankFacts&)>& condition) {
  const auto found = std::find_if(ranks.begin(), ranks.end(), condition);
  return found == ranks.end() ? nullptr : &*found;
}

inline bool any_gpu(const Ranks& ranks) {
  return first_with(ranks, [](const RankFacts& rank) {
           return rank.gpus_present > 0 || !rank.devices.empty();
         }) != nullptr;
}

}  // namespace lockstep::doctor
