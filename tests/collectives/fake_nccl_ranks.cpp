#include "fake_nccl_ranks.h"

#include <algorithm>
#include <tuple>
#include <vector>

namespace lockstep::testing {

bool FakeComm::find_group() {
  if (group != nullptr) {
    return true;
  }
  const std::lock_guard<std::mutex> lock(parent->mutex);
  FakeGroup::Split& split = parent->splits[split_number];
  if (static_cast<int>(split.wishes.size()) < parent->size) {
    return false;
  }
  std::vector<std::tuple<int, int>> members;  // key, rank
  for (const auto& [member, wish] : split.wishes) {
    if (wish.first == color) {
      members.emplace_back(wish.second, member);
    }
  }
  std::sort(members.begin(), members.end());
  auto& part = split.parts[color];
  if (part == nullptr) {
    part = std::make_shared<FakeGroup>(static_cast<int>(members.size()));
    for (int k = 0; k < part->size; ++k) {
      part->joined.insert(k);
    }
  }
  for (size_t k = 0; k < members.size(); ++k) {
    if (std::get<1>(members[k]) == parent_rank) {
      rank = static_cast<int>(k);
    }
  }
  group = part;
  return true;
}

void FakeComm::end_job() {
  if (job != nullptr) {
    job->thread.join();
    delete job;
    job = nullptr;
  }
}

bool FakeComm::job_is_done() {
  if (job != nullptr && !job->done.load()) {
    return false;
  }
  end_job();
  return true;
}

bool FakeComm::all_here() {
  const std::lock_guard<std::mutex> lock(group->mutex);
  const std::set<int>& here = captured > 0 ? group->captured_by[captured] : group->joined;
  return static_cast<int>(here.size()) == group->size;
}

void FakeComm::note_captured() {
  const std::lock_guard<std::mutex> lock(group->mutex);
  group->captured_by[++captured].insert(rank);
}

bool FakePart::operator()() {
  const bool done = meet();
  if (done && graph == nullptr) {
    --self->under_way;
  }
  return done;
}

bool FakePart::meet() {
  FakeGroup& group = *self->group;
  std::map<int, at::Tensor> brought;
  {
    const std::lock_guard<std::mutex> lock(group.mutex);
    if (self->aborted.load()) {
      return true;
    }
    number = number > 0 ? number : ++self->begun;
    if (hangs_at.count(number) > 0) {
      return false;
    }
    FakeGroup::Meeting& meeting = group.meetings[number];
    if (!arrived) {
      arrived = true;
      meeting.what[self->rank] = plan.what;
      meeting.brought[self->rank] = plan.input.clone();
    }
    for (const auto& [rank, what] : meeting.what) {
      if (what != plan.what) {
        return false;  // as NCCL: nobody notices
      }
    }
    if (static_cast<int>(meeting.brought.size()) < group.size) {
      return false;
    }
    brought = meeting.brought;
  }
  const std::lock_guard<std::mutex> not_aborting(group.mutex);
  if (!self->aborted.load()) {
    plan.finish(brought);
  }
  return true;
}

}  // namespace lockstep::testing
