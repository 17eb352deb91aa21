#include "cause/rank_table.h"

#include <algorithm>
#include <cstdlib>

#include "rank/exit_codes.h"

namespace lockstep::launcher {

void RankTable::add(const RankLine& line) {
  using Kind = RankLine::Kind;
  if (line.rank < 0) {
    return;
  }
  if (line.rank >= size()) {  // more ranks than expected
    ranks_.resize(static_cast<size_t>(line.rank) + 1);
  }
  RankRecord& record = ranks_[static_cast<size_t>(line.rank)];
  switch (line.kind) {
    case Kind::began: {
      char* end = nullptr;
      record.wrapper = static_cast<int>(std::strtol(line.text.c_str(), &end, 10));
      record.host = *end == ' ' ? end + 1 : end;
      break;
    }
    case Kind::life_sign:
      record.signs.add(line.text);
      if (record.signs.fails() && !record.has_ended()) {
        const int code = record.signs.end().code;
        note({line.rank, code != 0 ? code : exit_peer_lost, false});
      }
      if (!record.signs.snapshot().empty()) {
        snapshot_ = record.signs.snapshot();
      }
      break;
    case Kind::suspended:
      // After a failure it is the launcher that lets a suspended rank go on, to end it.
      if (const int signal = std::atoi(line.text.c_str()); signal != 0 || !has_failure()) {
        record.suspended_by = signal;
      }
      return;
    case Kind::status:
    case Kind::ended_after_request:
    case Kind::early:
      record.code = std::atoi(line.text.c_str());
      record.was_asked = line.kind == Kind::ended_after_request;
      record.early = line.kind == Kind::early;
      if (*record.code != 0) {
        note({line.rank, *record.code, record.was_asked});
      }
      break;
    case Kind::job:
    case Kind::line:
    case Kind::partial:
    case Kind::redraw:
      return;
  }
  last_change_ = Clock::now();
}

/// A rank that reported its failure keeps its place when it ends.
void RankTable::note(const RankFailure& failure) {
  const auto known = std::find_if(failures_.begin(), failures_.end(), [&](const RankFailure& each) {
    return each.rank == failure.rank;
  });
  if (known == failures_.end()) {
    failures_.push_back(failure);
  } else {
    *known = failure;
  }
}

bool RankTable::has_failure() const {
  const auto any = [&](const auto& holds) {
    return std::any_of(ranks_.begin(), ranks_.end(), holds);
  };
  const auto is_without_runtime = [](const RankRecord& record) {
    return record.has_ended() && record.signs.stage() == Stage::none;
  };
  const auto waits = [](const RankRecord& record) {
    return !record.has_ended() && record.signs.stage() == Stage::starting;
  };
  return any([](const RankRecord& record) {
           return record.signs.fails() ||
                  (record.has_ended() && *record.code != 0 && !record.was_asked);
         }) ||
         (any(is_without_runtime) && any(waits));
}

}  // namespace lockstep::launcher
