#include <lockstep/checkpointing/snapshot/impl/best.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/runtime/best_snapshot.h>
#include <lockstep/runtime/trainer.h>

namespace lockstep {

std::string best_snapshot(const std::string& folder) {
  return snapshot::find_best(folder);
}

std::string load_best(Trainer& trainer, const std::string& folder) {
  trainer.finish_saving();
  const Runtime& runtime = trainer.runtime();
  const std::string path = detail::Agreement(runtime.control(), ExitCode::snapshot)
                               .gather("looking for the best snapshot", [&] {
                                 return runtime.is_main() ? best_snapshot(folder) : std::string();
                               })[0];
  trainer.load_weights(path);
  return path;
}

}  // namespace lockstep
