#include <lockstep/collectives/core/shortened.h>
#include <lockstep/collectives/impl/activity.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

namespace lockstep::detail {
namespace {

struct Board {
  std::string text;
  double since = 0.0;
  std::vector<std::weak_ptr<ActivitySlot>> slots;

  void show() {
    for (auto slot = slots.begin(); slot != slots.end();) {
      if (const auto living = slot->lock()) {
        living->write(text, since);
        ++slot;
      } else {
        slot = slots.erase(slot);
      }
    }
  }
  void note(std::string what, double now) {
    text = std::move(what);
    since = now;
    show();
  }
};

Board& board() {
  static thread_local Board of_this_thread;
  return of_this_thread;
}

std::string& label() {
  static thread_local std::string of_this_thread;
  return of_this_thread;
}

}  // namespace

void ActivitySlot::write(const std::string& text, double since) {
  std::array<char, kBytes> bytes = {};
  const std::string shown = shortened(text, bytes.size() - 1);
  std::memcpy(bytes.data(), shown.data(), shown.size());
  for (size_t word = 0; word < words_.size(); ++word) {
    uint64_t value;
    std::memcpy(&value, bytes.data() + 8 * word, sizeof value);
    words_[word].store(value, std::memory_order_relaxed);
  }
  since_.store(since, std::memory_order_relaxed);
}

std::string ActivitySlot::text() const {
  std::array<char, kBytes + 1> bytes = {};
  for (size_t word = 0; word < words_.size(); ++word) {
    const uint64_t value = words_[word].load(std::memory_order_relaxed);
    std::memcpy(bytes.data() + 8 * word, &value, sizeof value);
  }
  return bytes.data();
}

double activity_clock() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

void show_activity_in(const std::shared_ptr<ActivitySlot>& slot) {
  auto& slots = board().slots;
  const bool is_known = std::any_of(slots.begin(), slots.end(),
                                    [&](const auto& each) { return each.lock() == slot; });
  if (!is_known) {
    slots.push_back(slot);
  }
  slot->write(board().text, board().since);
}

void note_activity(const char* what, int64_t number) {
  board().note(std::string(what) + " " + std::to_string(number), activity_clock());
}

WaitingNote::WaitingNote(const std::string& text, const std::shared_ptr<ActivitySlot>& own)
    : before_(board().text), since_(board().since) {
  board().note(text + " on another communicator", activity_clock());
  own->write(text, board().since);
}

WaitingNote::~WaitingNote() {
  board().note(std::move(before_), since_);
}

CallLabel::CallLabel(const char* what, int64_t number) {
  label() = std::string(what) + " " + std::to_string(number);
}

CallLabel::~CallLabel() {
  label().clear();
}

const std::string& CallLabel::current() {
  return label();
}

}  // namespace lockstep::detail
