#include <lockstep/collectives/check.h>
#include <lockstep/runtime/data/impl/loader_places.h>

#include <algorithm>
#include <string>

namespace lockstep {

void LoaderPlace::require_leaf(int64_t leaves, int64_t micro_batch) const {
  if (!in_hand_) {
    return;
  }
  LOCKSTEP_CHECK(sampler_.leaves() == leaves, "reproducible: the loader deals samples to ",
                 sampler_.leaves() == 0 ? "ranks" : c10::str(sampler_.leaves(), " leaves"),
                 ", the update has ", leaves,
                 " leaves; make the loader with LoaderOptions().leaves(", leaves, ")");
  const int64_t leaf = current_.batch % sampler_.batches_per_update();
  LOCKSTEP_CHECK(leaf == micro_batch, "reproducible: rank ", sampler_.rank(), " is at micro-batch ",
                 micro_batch, " of an update, its loader at the batch of micro-batch ", leaf,
                 "; run one step for every batch, and start loops between updates");
}

void LoaderPlaces::require_leaf(int64_t leaves, int64_t micro_batch) const {
  for (const auto& place : places_) {
    if (const auto found = place.lock()) {
      found->require_leaf(leaves, micro_batch);
    }
  }
}

void LoaderPlaces::add(const std::shared_ptr<LoaderPlace>& place) {
  if (!waiting_.empty()) {
    resume(waiting_.back(), *place);
    waiting_.pop_back();
  }
  places_.push_back(place);
}

std::vector<std::shared_ptr<LoaderPlace>> LoaderPlaces::alive() {
  std::vector<std::shared_ptr<LoaderPlace>> alive;
  for (const auto& place : places_) {
    if (auto found = place.lock()) {
      alive.push_back(std::move(found));
    }
  }
  places_.assign(alive.begin(), alive.end());
  return alive;
}

LoaderPlaces::Saved LoaderPlaces::saved(LoaderPlace& place) {
  const DistributedSampler& sampler = place.sampler();
  return {place.next(),
          sampler.taken(place.next()),
          sampler.size(),
          sampler.ranks(),
          sampler.batch_size(),
          static_cast<int64_t>(sampler.drops_last()),
          sampler.shuffles(),
          static_cast<int64_t>(sampler.seed()),
          place.trains(),
          sampler.sizes_digest(),
          sampler.weights_digest(),
          sampler.leaves()};
}

void LoaderPlaces::visit(StateArchive& archive, size_t number, Saved& saved) {
  const std::string name = "loader" + std::to_string(number);
  archive.number(name + ".epoch", saved.next.epoch);
  archive.number(name + ".batch", saved.next.batch);
  archive.number(name + ".start", saved.next.start);
  archive.number(name + ".taken", saved.taken);
  archive.number(name + ".size", saved.size);
  archive.number(name + ".ranks", saved.ranks);
  archive.number(name + ".batch_size", saved.batch_size);
  archive.number(name + ".drop_last", saved.drops_last);
  archive.number(name + ".shuffle", saved.shuffles);
  archive.number(name + ".seed", saved.seed);
  const auto later = [&](const std::string& kind, int64_t& value) {
    if (archive.saving() || archive.has(name + kind)) {
      archive.number(name + kind, value);
    }
  };
  later(".trains", saved.trains);
  later(".own_sizes", saved.sizes_digest);
  later(".weights", saved.weights);
  later(".leaves", saved.leaves);
}

SamplerPosition LoaderPlaces::position_for(const Saved& saved, LoaderPlace& place) {
  const Saved now = LoaderPlaces::saved(place);
  LOCKSTEP_CHECK_CODE(now.size == saved.size, ExitCode::data, "the snapshot's loader went over ",
                      saved.size, " samples, this one has ", now.size,
                      "; resume with the same dataset, and make the loaders in the same order");
  LOCKSTEP_CHECK_CODE(
      now.shuffles == saved.shuffles && (now.seed == saved.seed || !(now.shuffles || now.weights)),
      ExitCode::data, "the snapshot's loader had shuffle ", saved.shuffles, " and seed ",
      saved.seed, ", this one has ", now.shuffles, " and ", now.seed,
      ", so its order would repeat some samples and leave out others; resume with "
      "the same LoaderOptions and RuntimeOptions::seed");
  LOCKSTEP_CHECK_CODE((now.sizes_digest == 0) == (saved.sizes_digest == 0), ExitCode::data,
                      "the snapshot's loader was made by ",
                      saved.sizes_digest == 0 ? "loader()" : "local_loader()", ", this one by ",
                      now.sizes_digest == 0 ? "loader()" : "local_loader()",
                      "; make the loaders as the saved run did");
  LOCKSTEP_CHECK_CODE(now.ranks != saved.ranks || now.sizes_digest == saved.sizes_digest,
                      ExitCode::data,
                      "ranks have other numbers of samples of their own than in the saved run; "
                      "give each rank the samples that it had");
  LOCKSTEP_CHECK_CODE(now.weights == saved.weights, ExitCode::data, "the snapshot's loader had ",
                      saved.weights == 0 ? "no" : "other", " LoaderOptions::weights",
                      now.weights == 0 ? ", this one has none" : "",
                      "; resume with those of the saved run");
  const bool dealt_alike = now.batch_size == saved.batch_size &&
                           now.drops_last == saved.drops_last && now.leaves == saved.leaves;
  const bool same = dealt_alike && now.ranks == saved.ranks;
  SamplerPosition position = saved.next;
  if (begins_again(saved, place)) {
    position = {saved.next.epoch, 0, 0};
  } else if (!same && dealt_alike && now.leaves > 0) {
    const int64_t update = saved.next.batch / (saved.leaves / saved.ranks);
    position.batch = update * place.sampler().batches_per_update();
  } else if (!same) {
    position = place.sampler().after_samples(saved.next.epoch, saved.taken);
  }
  place.sampler().check(position);
  return position;
}

/// True if the epoch starts again: ranks have samples of their own, and ranks or batches changed.
bool LoaderPlaces::begins_again(const Saved& saved, LoaderPlace& place) {
  const Saved now = LoaderPlaces::saved(place);
  return now.sizes_digest != 0 && (now.ranks != saved.ranks || now.batch_size != saved.batch_size ||
                                   now.drops_last != saved.drops_last);
}

void LoaderPlaces::resume(const Saved& saved, LoaderPlace& place) {
  place.resume(position_for(saved, place), saved.trains != 0);
  if (begins_again(saved, place) && saved.next.batch > 0) {
    notes_.push_back(c10::str("epoch ", saved.next.epoch,
                              " begins again, since its samples are each rank's own: saved by ",
                              saved.ranks, " ranks in batches of ", saved.batch_size,
                              ", goes on with ", place.sampler().ranks(), " in batches of ",
                              place.sampler().batch_size()));
  }
}

double LoaderPlaces::note_step() {
  double waited = 0.0;
  for (const auto& place : places_) {
    if (const auto found = place.lock()) {
      waited += found->note_step();
    }
  }
  return waited;
}

std::vector<LoaderPlaces::Saved> LoaderPlaces::all_in(StateArchive& archive) {
  std::vector<Saved> all;
  for (size_t i = 0; archive.has("loader" + std::to_string(i) + ".epoch"); ++i) {
    visit(archive, i, all.emplace_back());
  }
  return all;
}

void LoaderPlaces::check(StateArchive& archive) {
  const std::vector<Saved> all = all_in(archive);
  const std::vector<std::shared_ptr<LoaderPlace>> places = alive();
  for (size_t i = 0; i < std::min(all.size(), places.size()); ++i) {
    position_for(all[i], *places[i]);
  }
}

void LoaderPlaces::visit_state(StateArchive& archive) {
  const std::vector<std::shared_ptr<LoaderPlace>> places = alive();
  if (archive.saving()) {
    for (size_t i = 0; i < places.size(); ++i) {
      Saved mine = saved(*places[i]);
      visit(archive, i, mine);
    }
    return;
  }
  const std::vector<Saved> all = all_in(archive);
  if (!archive.loading()) {
    return;
  }
  const size_t count = std::min(all.size(), places.size());
  for (size_t i = 0; i < count; ++i) {
    resume(all[i], *places[i]);
  }
  waiting_.assign(all.rbegin(), all.rend() - static_cast<std::ptrdiff_t>(count));
}

}  // namespace lockstep
