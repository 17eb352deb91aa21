#include <lockstep/collectives/error.h>
#include <lockstep/runtime/data/loader_places.h>

#include <algorithm>
#include <string>

namespace lockstep {

void LoaderPlaces::add(const std::shared_ptr<LoaderPlace>& place) {
  if (!waiting_.empty()) {
    place->resume(position_for(waiting_.back(), *place));
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
  return {place.next(),         sampler.taken(place.next()),
          sampler.size(),       sampler.ranks(),
          sampler.batch_size(), static_cast<int64_t>(sampler.drops_last()),
          sampler.shuffles(),   static_cast<int64_t>(sampler.seed())};
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
}

SamplerPosition LoaderPlaces::position_for(const Saved& saved, LoaderPlace& place) {
  const Saved now = LoaderPlaces::saved(place);
  LOCKSTEP_CHECK_CODE(now.size == saved.size, ExitCode::data, "the snapshot's loader went over ",
                      saved.size, " samples, this one has ", now.size,
                      "; resume with the same dataset, and make the loaders in the same order");
  LOCKSTEP_CHECK_CODE(now.shuffles == saved.shuffles && (now.seed == saved.seed || !now.shuffles),
                      ExitCode::data, "the snapshot's loader had shuffle ", saved.shuffles,
                      " and seed ", saved.seed, ", this one has ", now.shuffles, " and ", now.seed,
                      ", so its order would repeat some samples and leave out others; resume with "
                      "the same LoaderOptions and RuntimeOptions::seed");
  const bool same = now.ranks == saved.ranks && now.batch_size == saved.batch_size &&
                    now.drops_last == saved.drops_last;
  const SamplerPosition position =
      same ? saved.next : place.sampler().after_samples(saved.next.epoch, saved.taken);
  place.sampler().check(position);
  return position;
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
    places[i]->resume(position_for(all[i], *places[i]));
  }
  waiting_.assign(all.rbegin(), all.rend() - static_cast<std::ptrdiff_t>(count));
}

}  // namespace lockstep
