#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

namespace fake_cuda {

/// A use of a word (4 bytes): the piece of work, and which of the word's bytes.
class Use {
 public:
  Use() = default;
  Use(uint32_t piece, uint32_t bytes) : bits_(piece << 4 | bytes) {}
  uint32_t piece() const { return bits_ >> 4; }
  uint32_t bytes() const { return bits_ & 15; }  // a bit for each of the four
  uint32_t bits() const { return bits_; }
  auto operator<=>(const Use&) const = default;

 private:
  uint32_t bits_ = 0;
};

inline constexpr uint32_t kMostPieces = (1u << 27) - 1;  // one bit tells a use from a set of uses

/// What happened to a word: who wrote its bytes last, and who has read them since. Both are numbers
/// that UseSets gives.
struct Cell {
  uint32_t writers = 0;
  uint32_t readers = 0;
  bool operator==(const Cell&) const = default;
};

/// Sets of uses as numbers: 0 is none, one use is its own number. Nearly all words have one writer,
/// and those of a buffer have the same few readers.
class UseSets {
 public:
  static bool is_set(uint32_t number) { return (number >> 31) != 0; }
  static uint32_t number_of(Use use) { return use.bits(); }
  static Use use_of(uint32_t number) { return Use(number >> 4, number & 15); }
  /// A number that is_set().
  const std::vector<Use>& set_of(uint32_t number) const { return sets_[number & ~(1u << 31)]; }
  std::vector<Use> uses_of(uint32_t number) const;
  uint32_t number_of(const std::vector<Use>& uses);

 private:
  std::vector<std::vector<Use>> sets_;
  std::map<std::vector<Use>, uint32_t> numbers_;
};

/// The cells of all memory, by pages of 4096 bytes. A page whose words all had the same uses has
/// one cell. Not thread-safe.
class ShadowMemory {
 public:
  /// Calls change(Cell&, bytes_of_word, first_address) for the cells of the bytes, once for several
  /// words where they share one cell.
  template <typename Change>
  void visit(uintptr_t begin, size_t bytes, Change change) {
    for (const uintptr_t end = begin + bytes; begin < end;) {
      const uintptr_t page_end = (begin / kPage + 1) * kPage;
      const uintptr_t stop = end < page_end ? end : page_end;
      visit_page(page_of(begin), begin, stop, change);
      begin = stop;
    }
  }
  void forget(uintptr_t begin, size_t bytes);

 private:
  static constexpr size_t kPage = 4096;
  static constexpr size_t kWord = 4;
  using Cells = std::array<Cell, kPage / kWord>;

  struct Page {
    Cell all;                      // while there are no cells
    std::unique_ptr<Cells> cells;  // made when a part of the page is used
  };

  template <typename Change>
  void visit_page(Page& page, uintptr_t begin, uintptr_t end, Change& change) {
    if (end - begin == kPage) {
      if (page.cells != nullptr) {
        join_equal_cells(page);
      }
      if (page.cells == nullptr) {
        change(page.all, 15u, begin);
        return;
      }
    }
    if (page.cells == nullptr) {
      page.cells = std::make_unique<Cells>();
      page.cells->fill(page.all);
    }
    Cell before;  // equal neighbours become equal neighbours
    Cell after;
    bool is_known = false;
    for (uintptr_t word = begin / kWord * kWord; word < end; word += kWord) {
      Cell& cell = (*page.cells)[word % kPage / kWord];
      if (begin <= word && word + kWord <= end) {
        if (is_known && cell == before) {
          cell = after;
          continue;
        }
        before = cell;
        change(cell, 15u, word);
        after = cell;
        is_known = true;
        continue;
      }
      const uintptr_t first = begin > word ? begin : word;
      const uintptr_t last = end < word + kWord ? end : word + kWord;
      change(cell, ((1u << (last - first)) - 1) << (first - word), first);
    }
  }

  static void join_equal_cells(Page& page);
  Page& page_of(uintptr_t address);

  std::unordered_map<uintptr_t, Page> pages_;  // by address / kPage
  uintptr_t last_number_ = 0;
  Page* last_page_ = nullptr;
};

}  // namespace fake_cuda
