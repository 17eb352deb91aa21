#include <lockstep/collectives/core/rank_sign.h>

#include <c10/util/StringUtil.h>

#include <cstdio>
#include <sstream>

namespace lockstep::detail {

std::string render_signs(const std::vector<RankSign>& signs) {
  std::string text;
  for (const RankSign& sign : signs) {
    text += c10::str(sign.rank, ' ', sign.last_call, ' ', sign.gone, ' ', sign.stopped, ' ',
                     sign.seconds, ' ', sign.activity, '\n');
  }
  return text;
}

std::vector<RankSign> parse_signs(const std::string& text) {
  std::vector<RankSign> signs;
  std::istringstream lines(text);
  for (RankSign sign;
       lines >> sign.rank >> sign.last_call >> sign.gone >> sign.stopped >> sign.seconds &&
       lines.get() == ' ';) {
    std::getline(lines, sign.activity);
    signs.push_back(sign);
  }
  return signs;
}

std::string describe_sign(const RankSign& sign) {
  std::string text =
      c10::str("rank ", sign.rank, sign.gone ? " has died or left" : " did not arrive",
               " (its last call was #", sign.last_call, ")");
  if (!sign.activity.empty()) {
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%.1f", sign.seconds);
    text +=
        c10::str(sign.gone ? "; last seen in " : "; in ", sign.activity, " for ", seconds, " s");
  }
  return sign.stopped && !sign.gone ? text + "; stopped by a signal or a debugger" : text;
}

}  // namespace lockstep::detail
