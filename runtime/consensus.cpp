#include <lockstep/runtime/consensus.h>

namespace lockstep {

std::optional<Word> Consensus::share(Word mine, Decisions& decisions) {
  if (acts_ == HostActs::at_once) {
    double* overflow = decisions.flags().mutable_data_ptr<double>();
    mine.overflow = *overflow > 0 ? 1 : 0;
    const Word all = agreement_.exchange(mine);
    *overflow = all.overflow;
    return all;
  }
  share_flags(decisions);
  post(mine);
  return std::nullopt;
}

void Consensus::share_flags(const Decisions& decisions) {
  devices_.all_reduce(decisions.flags()).wait();
}

void Consensus::post(const Word& mine) {
  agreement_.post(mine);
  on_its_way_ = true;
}

std::optional<Word> Consensus::settle() {
  if (!on_its_way_) {
    return std::nullopt;
  }
  on_its_way_ = false;
  return agreement_.collect();
}

}  // namespace lockstep
