#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <c10/core/Event.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/step/impl/reducer.h>
#include <lockstep/runtime/step/impl/replicated_array.h>
#include <lockstep/runtime/step/impl/trainable.h>
#include <lockstep/runtime/step/impl/updater.h>
#include <lockstep/runtime/step/impl/votes.h>
#include <lockstep/runtime/step/impl/written_weights.h>
#include <lockstep/runtime/storage/impl/arena.h>
#include <lockstep/runtime/storage/impl/named_views.h>

#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {
class Runtime;
}  // namespace lockstep

namespace lockstep::detail {

/// Compares the training state that every rank keeps: weights, masters and moments (weights alone
/// with a sharded optimizer). A bit that flipped in one rank's memory, or weights that one rank
/// alone wrote, are errors with exit code diverged. Also compares weights with their own masters
/// (WrittenWeights::hidden), at updates in host memory only.
///
/// Each update compares a part, so that `every` updates compare everything. The digest of the part
/// travels in the ranks' votes. In host memory a difference is found before the update. On a device
/// the host must not wait for the device, so the digest of an update travels two updates later.
/// Threads: one.
class ReplicaCheck {
 public:
  /// `every`: 0 compares nothing at updates. `shared`: with LocalUpdates, what every rank holds
  /// with the same bits; compared in place of weights, masters and moments. `averages`: of
  /// buffers; compared beside weights.
  ReplicaCheck(const Trainable& trainable, const Arena& arena, const Reducer& reducer,
               Updater& updater, WrittenWeights& written, Agreement agreement, int64_t every,
               std::vector<ReplicatedArray> shared = {}, const NamedTensors& averages = {});

  /// Adds the digest of what is due at update number `update` to this rank's votes; on a device,
  /// of what was due two updates ago.
  void add_to(Votes& mine, int64_t update);
  /// Adopts what every rank wrote alike into shared weights, unless only adopt_weights() may.
  /// Throws the same Error on every rank if they wrote different values. Collective.
  void take_shared();
  /// The same if the votes of all ranks say that there is something, which it takes out of them.
  void take_shared(Votes& all);
  /// True if the votes of all ranks say that digests differ, or a weight from its master.
  bool differ(const Votes& all) const { return digests_differ(all) || all.hidden > 0; }
  /// Call it after differ(): finds the difference, throws the same Error on every rank. Collective.
  [[noreturn]] void raise(const Votes& all);

  /// Compares the whole state. Throws the same Error on every rank. Collective.
  void require_equal();
  /// require_equal() as an answer. `more`: further arrays that are to be equal.
  bool are_equal(const std::vector<ReplicatedArray>& more);
  /// If the state was not compared since the last update, passes names and digests of its arrays to
  /// Runtime::hold_at_end(). Local.
  void hold_at_end(const Runtime& runtime);

 private:
  /// A digest on its way from the device to the host.
  struct Copied {
    at::Tensor sum;  // int64, 0-dimensional, in pinned memory
    c10::Event event;
    size_t first_array;
    uint64_t on_host;  // digest of the arrays that are in host memory
  };
  bool digests_differ(const Votes& all) const;
  /// `array`: the one to look at. Collective.
  Error diverged(const DigestDifference& difference, const std::string& array) const;
  void require_equal_state();
  void note_arrays(const Arena& arena, const NamedTensors& averages);
  std::vector<ReplicatedArray> whole_state();
  void digest_on_host(int64_t update);
  void digest_on_device(int64_t update);

  const Trainable& trainable_;
  const Reducer& reducer_;
  Updater& updater_;
  WrittenWeights& written_;
  bool has_one_copy_;  // of the weights on each node
  c10::Device device_;
  Agreement agreement_;
  bool only_shared_;
  std::vector<ReplicatedArray> arrays_;  // flat, in memory that stays
  size_t without_moments_ = 0;           // number of arrays before the moments
  std::vector<int64_t> begins_;          // bytes before each of them, and of all
  int64_t part_bytes_ = 0;               // of one update, in host memory; 0: none
  size_t part_arrays_ = 0;               // of one update, on a device; 0: none
  std::deque<Copied> copied_;
  bool compared_ = true;         // the whole state, since the last update
  std::optional<Error> hidden_;  // of this rank, as of the last update
  uint64_t last_digest_ = 0;
  size_t last_array_ = 0;  // where the part of the last update begins
};

}  // namespace lockstep::detail
