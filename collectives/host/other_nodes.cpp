#include <lockstep/collectives/host/other_nodes.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string_view>

namespace lockstep::detail {
namespace {

/// How long data of a rank that has left may still be on its way.
constexpr double kSecondsAfterLastWords = 1.0;
/// The first characters of the message of a rank that leaves: "left: CODE CAUSE".
constexpr std::string_view kLeft = "left: ";
/// And of one that leaves a step: "step: ROUND LAST CAUSE".
constexpr std::string_view kLeftStep = "step: ";

/// The rest of a message that begins with `what`; null if it does not.
std::optional<std::istringstream> rest_of(const std::string& text, std::string_view what) {
  if (text.compare(0, what.size(), what) != 0) {
    return std::nullopt;
  }
  return std::istringstream(text.substr(what.size()));
}

std::string all_of(std::istringstream& in) {
  return std::string(std::istreambuf_iterator<char>(in.ignore()), {});
}

}  // namespace

OtherNodes::OtherNodes(InterNode* inter_node, std::vector<int> ranks_of_this_node, int size,
                       double timeout)
    : inter_node_(inter_node), timeout_(timeout) {
  for (int rank = 0; rank < size; ++rank) {
    const auto& local = ranks_of_this_node;
    if (inter_node != nullptr && std::find(local.begin(), local.end(), rank) == local.end()) {
      ranks_.push_back(rank);
    }
  }
}

void OtherNodes::begin_wait() {
  next_ = timeout_ / 4;
  if (left_at_) {
    left_at_ = 0.0;
  }
  for (auto entry = heard_.begin(); entry != heard_.end();) {
    entry = entry->second.gone ? std::next(entry) : heard_.erase(entry);
  }
}

void OtherNodes::hear(double waited) {
  if (inter_node_ == nullptr) {
    return;
  }
  for (const auto& [sender, text] : inter_node_->heard()) {
    if (auto left = rest_of(text, kLeft)) {
      RankSign& sign = heard_[sender];
      sign.rank = sender;
      sign.gone = true;
      *left >> sign.code;
      sign.cause = all_of(*left);
      left_at_ = left_at_.value_or(waited);
      continue;
    }
    if (auto left = rest_of(text, kLeftStep)) {
      LeftStep& step = left_steps_[sender];
      *left >> step.round >> step.last;
      step.cause = all_of(*left);
      continue;
    }
    for (const RankSign& sign : parse_signs(text)) {
      if (!heard_[sign.rank].gone) {
        heard_[sign.rank] = sign;
      }
    }
  }
}

void OtherNodes::exchange(double waited,
                          const std::function<std::vector<RankSign>()>& signs_of_this_node) {
  hear(waited);
  if (inter_node_ != nullptr && waited >= next_) {
    next_ += timeout_ / 4;
    inter_node_->tell(render_signs(signs_of_this_node()));
  }
}

bool OtherNodes::have_lost_a_rank(double waited) const {
  return left_at_ && waited >= *left_at_ + kSecondsAfterLastWords;
}

void OtherNodes::add_to(PeerTrouble& trouble, uint64_t sequence) const {
  for (int rank : ranks_) {
    const auto sign = heard_.find(rank);
    if (sign == heard_.end()) {
      trouble.silent.push_back(rank);
    } else if (sign->second.gone || sign->second.last_call < sequence) {
      trouble.some_are_gone = trouble.some_are_gone || sign->second.gone;
      trouble.late.push_back(sign->second);
    }
  }
}

void OtherNodes::leave_step(uint64_t round, uint64_t last, const std::string& cause) {
  if (inter_node_ != nullptr) {
    inter_node_->tell(std::string(kLeftStep) + std::to_string(round) + ' ' + std::to_string(last) +
                      ' ' + cause);
  }
}

std::optional<std::string> OtherNodes::left_step(uint64_t round, uint64_t sequence) const {
  for (const auto& [rank, step] : left_steps_) {
    if (step.round == round && step.last < sequence) {
      return step.cause;
    }
  }
  return std::nullopt;
}

void OtherNodes::leave_because(const std::string& cause, int code) noexcept {
  try {
    if (inter_node_ != nullptr) {
      inter_node_->tell_at_last(std::string(kLeft) + std::to_string(code) + ' ' + cause);
    }
  } catch (const std::exception&) {
    return;  // no memory for a message: the other nodes detect later that this rank is gone
  }
}

}  // namespace lockstep::detail
