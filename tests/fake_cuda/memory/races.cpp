#include "races.h"

#include <cxxabi.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "memory.h"
#include "shadow_memory.h"

namespace fake_cuda {
namespace {

constexpr size_t kMostPrinted = 20;

/// A piece of work that has used memory. Cells hold its index in the list of all.
struct Piece {
  uint32_t lane = 0;
  uint64_t number = 0;
  const char* what = "";
};

/// The check of one access: the cells of its bytes, one after the other.
class Races {
 public:
  static Races& instance() {
    static Races* races = new Races;
    return *races;
  }

  void check(const Actor& actor, uintptr_t begin, size_t bytes, bool writes);
  void forget(uintptr_t begin, size_t bytes);
  void report(const std::string& text);
  uint32_t new_lane(const std::string& name);
  std::string name_of_lane(uint32_t lane);
  long found();

 private:
  uint32_t index_of(const Actor& actor);
  void read(Cell& cell, uint32_t bytes, uintptr_t address);
  void write(Cell& cell, uint32_t bytes, uintptr_t address);
  bool is_ordered(uint32_t piece);
  /// The uses of `number` and this piece's of the bytes, less those that covers(use) calls
  /// needless.
  template <typename Covers>
  uint32_t added(uint32_t number, uint32_t bytes, Covers covers);
  void compare_all(const char* how, uint32_t number, uint32_t bytes, uintptr_t address);
  void compare(const char* how, Use use, uint32_t bytes, uintptr_t address);
  std::string name_of(uint32_t lane) const;
  void print(const std::string& text);

  std::mutex mutex_;
  std::vector<Piece> pieces_{Piece{}};          // index 0 is no piece
  std::vector<std::string> lanes_{"the host"};  // names
  std::vector<uint32_t> last_of_lane_{0};       // index of its last piece
  ShadowMemory shadow_;
  UseSets uses_;
  std::set<std::pair<uint32_t, uint32_t>> racing_;  // pieces that have raced
  std::set<std::tuple<std::string, uint32_t, std::string, uint32_t>> printed_;
  long found_ = 0;
  long lines_ = 0;

  // Of the access that is being checked:
  const Actor* actor_ = nullptr;
  uint32_t piece_ = 0;
  bool writes_ = false;
  uint32_t asked_ = 0;  // the last piece of is_ordered(), and its answer
  bool answer_ = false;
};

void Races::check(const Actor& actor, uintptr_t begin, size_t bytes, bool writes) {
  const std::lock_guard lock(mutex_);
  actor_ = &actor;
  piece_ = index_of(actor);
  writes_ = writes;
  asked_ = 0;  // the host's clock may have learnt something since
  if (piece_ >= kMostPieces) {
    return;
  }
  if (writes) {
    shadow_.visit(begin, bytes, [this](Cell& cell, uint32_t used, uintptr_t address) {
      write(cell, used, address);
    });
  } else {
    shadow_.visit(begin, bytes, [this](Cell& cell, uint32_t used, uintptr_t address) {
      read(cell, used, address);
    });
  }
}

uint32_t Races::index_of(const Actor& actor) {
  if (actor.lane >= last_of_lane_.size()) {
    last_of_lane_.resize(actor.lane + 1);
  }
  uint32_t& last = last_of_lane_[actor.lane];
  if (last == 0 || pieces_[last].number != actor.number || pieces_[last].what != actor.what) {
    if (pieces_.size() == kMostPieces) {
      print("more pieces of work than the check of races can tell apart: it ends here");
    }
    if (pieces_.size() >= kMostPieces) {
      return kMostPieces;
    }
    last = static_cast<uint32_t>(pieces_.size());
    pieces_.push_back({actor.lane, actor.number, actor.what});
  }
  return last;
}

bool Races::is_ordered(uint32_t piece) {
  if (piece != asked_) {
    const Piece& earlier = pieces_[piece];
    asked_ = piece;
    answer_ = earlier.lane == actor_->lane ||
              (actor_->before != nullptr && actor_->before->knows(earlier.lane, earlier.number));
  }
  return answer_;
}

void Races::read(Cell& cell, uint32_t bytes, uintptr_t address) {
  compare_all("wrote", cell.writers, bytes, address);
  // A reader before this one needs no place of its own: who is ordered after this one is ordered
  // after that one too.
  cell.readers = added(cell.readers, bytes, [&](Use use) { return is_ordered(use.piece()); });
}

void Races::write(Cell& cell, uint32_t bytes, uintptr_t address) {
  compare_all("wrote", cell.writers, bytes, address);
  cell.writers = added(cell.writers, bytes, [](Use) { return true; });
  if (cell.readers != 0) {
    compare_all("read", cell.readers, bytes, address);
    if (bytes == 15) {
      cell.readers = 0;
      return;
    }
    std::vector<Use> others = uses_.uses_of(cell.readers);
    std::erase_if(others, [&](Use use) { return (use.bytes() & ~bytes) == 0; });
    cell.readers = uses_.number_of(others);
  }
}

template <typename Covers>
uint32_t Races::added(uint32_t number, uint32_t bytes, Covers covers) {
  const Use mine(piece_, bytes);
  if (!UseSets::is_set(number)) {  // the usual case, without a list
    const Use only = UseSets::use_of(number);
    if ((only.bytes() & ~bytes) == 0 && (only.piece() == piece_ || covers(only))) {
      return UseSets::number_of(mine);
    }
  }
  std::vector<Use> uses = uses_.uses_of(number);
  uint32_t own_bytes = bytes;
  std::erase_if(uses, [&](Use use) {
    if (use.piece() == piece_) {
      own_bytes |= use.bytes();
      return true;
    }
    return (use.bytes() & ~bytes) == 0 && covers(use);
  });
  uses.emplace_back(piece_, own_bytes);
  return uses_.number_of(uses);
}

void Races::compare_all(const char* how, uint32_t number, uint32_t bytes, uintptr_t address) {
  if (!UseSets::is_set(number)) {
    compare(how, UseSets::use_of(number), bytes, address);
    return;
  }
  for (const Use use : uses_.set_of(number)) {
    compare(how, use, bytes, address);
  }
}

void Races::compare(const char* how, Use use, uint32_t bytes, uintptr_t address) {
  if ((use.bytes() & bytes) == 0 || use.piece() == piece_ || is_ordered(use.piece())) {
    return;
  }
  if (!racing_.emplace(use.piece(), piece_).second) {
    return;
  }
  ++found_;
  const Piece& earlier = pieces_[use.piece()];
  if (printed_.size() >= kMostPrinted ||
      !printed_.emplace(earlier.what, earlier.lane, actor_->what, actor_->lane).second) {
    return;
  }
  char place[32];
  std::snprintf(place, sizeof place, "0x%zx", static_cast<size_t>(address));
  print("race: \"" + readable(earlier.what) + "\" (" + name_of(earlier.lane) + ") " + how +
        " and \"" + readable(actor_->what) + "\" (" + name_of(actor_->lane) + ") " +
        (writes_ ? "writes " : "reads ") + place +
        ", and no event orders them: " + describe_address(address));
}

void Races::print(const std::string& text) {
  ++lines_;
  print_line(text);
}

void Races::report(const std::string& text) {
  const std::lock_guard lock(mutex_);
  ++found_;
  if (lines_ < static_cast<long>(kMostPrinted)) {
    print("race: " + text);
  }
}

void Races::forget(uintptr_t begin, size_t bytes) {
  const std::lock_guard lock(mutex_);
  shadow_.forget(begin, bytes);
}

uint32_t Races::new_lane(const std::string& name) {
  const std::lock_guard lock(mutex_);
  lanes_.push_back(name);
  return static_cast<uint32_t>(lanes_.size()) - 1;
}

std::string Races::name_of(uint32_t lane) const {
  return lane < lanes_.size() ? lanes_[lane] : "lane " + std::to_string(lane);
}

std::string Races::name_of_lane(uint32_t lane) {
  const std::lock_guard lock(mutex_);
  return name_of(lane);
}

long Races::found() {
  const std::lock_guard lock(mutex_);
  return found_;
}

}  // namespace

std::string readable(const char* what) {
  constexpr size_t kMostLetters = 200;  // templates of LibTorch have thousands
  int status = 0;
  const bool is_mangled = std::strncmp(what, "_Z", 2) == 0;
  char* name = is_mangled ? abi::__cxa_demangle(what, nullptr, nullptr, &status) : nullptr;
  std::string text = name == nullptr || status != 0 ? what : name;
  std::free(name);
  if (text.size() > kMostLetters) {
    text = text.substr(0, kMostLetters) + "...";
  }
  return text;
}

void print_line(const std::string& text) {
  const std::string line = "fake cuda: " + text + "\n";
  if (::write(STDERR_FILENO, line.data(), line.size()) < 0) {
    return;  // nobody can be told
  }
}

bool races_are_checked() {
  static const bool checked = setting("FAKE_CUDA_RACES", 0L) == 1;
  return checked;
}

void check_access(const Actor& actor, const void* memory, size_t bytes, bool writes) {
  if (races_are_checked() && bytes != 0) {
    Races::instance().check(actor, reinterpret_cast<uintptr_t>(memory), bytes, writes);
  }
}

void forget_accesses(const void* memory, size_t bytes) {
  if (races_are_checked()) {
    Races::instance().forget(reinterpret_cast<uintptr_t>(memory), bytes);
  }
}

void report_race(const std::string& text) {
  Races::instance().report(text);
}

uint32_t new_lane(const std::string& name) {
  return Races::instance().new_lane(name);
}

std::string name_of_lane(uint32_t lane) {
  return Races::instance().name_of_lane(lane);
}

long races_found() {
  return Races::instance().found();
}

}  // namespace fake_cuda
