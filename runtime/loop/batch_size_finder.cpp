#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/runtime/batch_size_finder.h>
#include <lockstep/runtime/trainer/impl/kept_training.h>

#include <algorithm>
#include <cstdint>
#include <optional>

namespace lockstep {
namespace {

constexpr int64_t kMost = int64_t{1} << 40;

}  // namespace

void BatchSizeSearch::validate() const {
  LOCKSTEP_CHECK(smallest_ >= 1, "BatchSizeSearch.smallest must be >= 1, is ", smallest_);
  LOCKSTEP_CHECK(most_ >= smallest_, "BatchSizeSearch.most must be >= smallest, it is ", most_,
                 ", smallest is ", smallest_);
  LOCKSTEP_CHECK(most_ <= kMost, "BatchSizeSearch.most must be <= ", kMost, ", is ", most_);
}

int64_t find_batch_size(Trainer& trainer, const std::function<void(int64_t)>& try_size,
                        const BatchSizeSearch& search) {
  search.validate();
  detail::KeptTraining kept(trainer.impl(), "find_batch_size");
  detail::KeptTraining::require_any_size(kept.options(), "find_batch_size");
  const int64_t unit = search.smallest();

  /// Why no batch of this many units fits; nothing if one does.
  const auto failure_of = [&](int64_t units) {
    const auto failure = kept.attempt([&] { try_size(units * unit); });
    if (failure && failure->code() != ExitCode::out_of_memory) {
      throw Error(*failure);
    }
    return failure;
  };

  const int64_t most = search.most() / unit;
  int64_t fits = 0;
  int64_t fails = most + 1;
  for (int64_t units = 1; fits < most && fails > most; units = std::min(2 * units, most)) {
    if (const auto failure = failure_of(units)) {
      LOCKSTEP_CHECK_CODE(fits > 0, ExitCode::out_of_memory,
                          "find_batch_size: no batch fits, the smallest size is ", unit, ": ",
                          failure->what());
      fails = units;
    } else {
      fits = units;
    }
  }
  while (fails - fits > 1) {
    const int64_t middle = fits + (fails - fits) / 2;
    (failure_of(middle) ? fails : fits) = middle;
  }
  kept.give_back();
  return fits * unit;
}

}  // namespace lockstep
