#pragma once

#include <lockstep/runtime/agreement.h>
#include <lockstep/runtime/arena.h>
#include <lockstep/runtime/reducer.h>
#include <lockstep/runtime/trainable.h>
#include <lockstep/runtime/updater.h>

#include <optional>
#include <string>
#include <vector>

namespace lockstep {

class Runtime;

/// An array of which every rank holds a copy with the same bits.
struct ReplicatedArray {
  std::string name;
  at::Tensor array;  // dense, of any strides and device
};

/// What is wrong where ranks hold other bits than others: which ranks (those that differ from more
/// than half of them), and in which array first. None if all are equal. The same on every rank;
/// collective.
std::optional<std::string> difference_between_ranks(const std::vector<ReplicatedArray>& arrays,
                                                    Agreement& agreement);

/// The same from the digests of arrays of these names that each rank found: 8 bytes an array.
std::string difference_of(const std::vector<std::string>& names,
                          const std::vector<std::string>& digests_of_ranks);

/// Compares what every rank keeps of the training state: weights, masters and moments (weights
/// alone where the optimizer is sharded). A bit that flipped in one rank's memory, or weights that
/// one rank alone wrote, are errors with exit code diverged.
///
/// In host memory a part is compared at each update: its digest travels in the word that ranks
/// share anyway, and after `every` updates all was compared. On a device the state is compared
/// whole only, where require_equal() is called. Threads: one.
class ReplicaCheck {
 public:
  /// `every`: 0 compares nothing at updates.
  ReplicaCheck(const Trainable& trainable, const Arena& arena, const Reducer& reducer,
               Updater& updater, Agreement agreement, int64_t every);

  /// Adds the digest of what is due at update number `update` to this rank's word.
  void add_to(Word& mine, int64_t update);
  /// Whether the ranks' digests differ, says the word of all.
  bool differ(const Word& all) const;
  /// Finds out where, after differ(), and throws the same Error on every rank. Collective.
  [[noreturn]] void raise();

  /// Compares all of it. Throws the same Error on every rank. Collective.
  void require_equal();
  /// The same as an answer. `more`: what else is to be equal.
  bool are_equal(const std::vector<ReplicatedArray>& more);
  /// Names and digests of what was not compared since the last update, if anything. Local.
  void hold_at_end(const Runtime& runtime);

 private:
  std::vector<ReplicatedArray> whole_state();

  const Trainable& trainable_;
  const Reducer& reducer_;
  Updater& updater_;
  Agreement agreement_;
  std::vector<ReplicatedArray> arrays_;  // flat, and where they are for good
  size_t without_moments_ = 0;           // so many of them
  std::vector<int64_t> begins_;          // bytes before each of them, and of all
  int64_t part_bytes_ = 0;               // of one update; 0: none
  bool compared_ = true;                 // whole, since the last update
  uint64_t last_digest_ = 0;
  size_t last_array_ = 0;  // where the part of the last update begins
};

}  // namespace lockstep
