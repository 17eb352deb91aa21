#pragma once

#include <string>

namespace lockstep {

class Trainer;

/// The path of the snapshot with the best metric in the folder of a run: of those that were saved
/// with save(metric) and are still there (KeepOptions::best keeps them), the best one of which no
/// byte is damaged; of equal ones the first. The newest of them says which metric is better.
///   lockstep::load_weights(model, lockstep::best_snapshot("runs/first"));
/// Throws Error (exit code snapshot) if there is none. Ranks: local; reads every byte of the
/// snapshot. A Trainer that still saves calls load_best().
std::string best_snapshot(const std::string& folder);

/// Loads the weights, buffers and moving averages of best_snapshot() into a Trainer and its model,
/// for the last evaluation of a run: see Trainer::load_weights(). First completes a pending save,
/// whose result is then not in the report of a later step. Returns the path. Ranks: every rank must
/// call it, between windows. Throws the same Error on every rank if there is no such snapshot, or
/// if it does not fit.
std::string load_best(Trainer& trainer, const std::string& folder);

}  // namespace lockstep
