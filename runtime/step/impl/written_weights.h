#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <c10/core/TensorImpl.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/runtime/process/impl/digest_difference.h>
#include <lockstep/runtime/step/impl/trainable.h>
#include <lockstep/runtime/storage/impl/arena.h>
#include <lockstep/runtime/storage/impl/renormed_tables.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::detail {

/// Adopts what the program writes into trained weights: clamps, projections, noise, the max_norm of
/// an embedding. If a weight has a master of its own, the next update starts from the master, so
/// the master must take the written values. A write through a parameter or a view of it advances
/// LibTorch's version of the parameter. One through data() or a pointer does not: it is found by
/// comparing values, and refused.
/// Ranks: take() is collective where the model has RenormedTables, take_shared() where weights are
/// shared, the rest local. Threads: one.
class WrittenWeights {
 public:
  /// `plans`: those of `arena`. `takes_shared`: see takes_shared().
  WrittenWeights(const Trainable& trainable, Arena& arena, const std::vector<BucketPlan>& plans,
                 RenormedTables tables, bool takes_shared);

  /// Merges the tables, then adopts. Call it before an update or anything else reads masters.
  void take();
  /// Copies to masters the elements that the program wrote: those where the weight is not the
  /// rounded master. Other elements keep their low bits; with remainders, written ones do too. The
  /// host does not wait for a device. Does nothing if ranks share weights.
  void adopt();

  /// For weights that the ranks of a node share, in place of adopt(): adopts what every rank wrote
  /// alike, and publishes it. If ranks wrote different values it adopts nothing and returns the
  /// difference. If memory is faulty it adopts nothing: hidden() tells. Call it when no rank reads
  /// weights. Collective, if the arena is shared.
  std::optional<DigestDifference> take_shared(const Agreement& agreement);
  /// Whether an update does that, or only Trainer::adopt_weights().
  bool takes_shared() const { return takes_shared_; }

  /// The Error of the first weight of this rank that is not its rounded master, though no write was
  /// seen, or that it wrote though the ranks of a node share it. Waits for the device.
  std::optional<Error> hidden() const;
  /// hidden() in host memory only. For each update, which would overwrite the weight.
  std::optional<Error> hidden_on_host() const;
  /// Throws Error if the program wrote, since adopt(), into a weight with a master of its own: a
  /// captured graph would do it again where the host cannot see it.
  void require_unwritten() const;

  /// Names of the weights, frozen ones too, that the program wrote since forget().
  std::vector<std::string> names() const;
  /// Call it when lockstep wrote all weights: earlier writes of the program no longer count.
  void forget();
  /// True if forward may make this weight differ between ranks until the next take().
  bool is_renormed(const std::string& name) const { return tables_.has(name); }

  /// While the result lives, weights hold other values (averages): nothing is adopted or compared.
  std::shared_ptr<const void> lend() const { return lent_; }

 private:
  /// Where a parameter lies.
  struct Place {
    size_t bucket = 0;
    Shard::Part part;  // of this rank's masters
  };
  bool has_own_masters(size_t bucket) const;
  bool is_lent() const { return lent_.use_count() > 1; }
  /// The version of a trained parameter, less lockstep's own writes.
  uint32_t version(size_t parameter) const {
    return versions_[parameter].current_version() - arena_.writes();
  }
  template <typename Body>
  bool any_part(size_t bucket, int64_t begin, int64_t numel, const Body& body) const;
  void adopt_seen();
  void adopt(const Place& place) const;
  std::optional<Error> hidden(size_t parameter) const;
  std::optional<Error> changed() const;
  std::optional<Error> unshared() const;

  const Trainable& trainable_;
  Arena& arena_;
  RenormedTables tables_;
  bool takes_shared_;
  // By trained parameter:
  std::vector<Place> places_;
  std::vector<c10::VariableVersion> versions_;  // LibTorch's counters, beside each other: 20,000 of
                                                // them are read at each update
  std::vector<uint32_t> seen_;                  // version(), at the last adopt()
  std::vector<char> wrote_;                     // 1: the program wrote it, since forget()

  std::vector<uint32_t> frozen_;      // versions of frozen parameters, at forget()
  std::shared_ptr<const char> lent_;  // its use count tells of lend()
};

}  // namespace lockstep::detail
