#include <lockstep/collectives/host/other_nodes.h>

#include <algorithm>
#include <iterator>
#include <string_view>

namespace lockstep::detail {
namespace {

/// How long data of a rank that has left may still be on its way.
constexpr double kSecondsAfterLastWords = 1.0;
/// The first characters of the message of a rank that leaves.
constexpr std::string_view kLeft = "left: ";

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

void OtherNodes::exchange(double waited,
                          const std::function<std::vector<RankSign>()>& signs_of_this_node) {
  if (inter_node_ == nullptr) {
    return;
  }
  for (const auto& [sender, text] : inter_node_->heard()) {
    if (text.compare(0, kLeft.size(), kLeft) == 0) {
      RankSign& sign = heard_[sender];
      sign.rank = sender;
      sign.gone = true;
      sign.cause = text.substr(kLeft.size());
      left_at_ = left_at_.value_or(waited);
      continue;
    }
    for (const RankSign& sign : parse_signs(text)) {
      if (!heard_[sign.rank].gone) {
        heard_[sign.rank] = sign;
      }
    }
  }
  if (waited >= next_) {
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

void OtherNodes::leave_because(const std::string& cause) noexcept {
  try {
    if (inter_node_ != nullptr) {
      inter_node_->tell_at_last(std::string(kLeft) + cause);
    }
  } catch (const std::exception&) {
    return;  // no memory for a message: the other nodes detect later that this rank is gone
  }
}

}  // namespace lockstep::detail
