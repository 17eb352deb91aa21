#include <lockstep/bindings/c/calls/arguments.h>
#include <lockstep/bindings/c/calls/arrays.h>
#include <lockstep/bindings/c/calls/handles.h>
#include <lockstep/bindings/c/calls/status.h>
#include <lockstep/bindings/c/lockstep.h>
#include <lockstep/bindings/c/text/own_loop_text.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/agreement.h>

// The functions of lockstep.h for loops of the program's own, in its order.

namespace {

using namespace lockstep;
using namespace lockstep::c;

void write_gradients(const std::vector<at::Tensor>& tensors, const lockstep_array* gradients) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    write(tensors[i], gradients[i], c10::str("gradient ", i));
  }
}

}  // namespace

int lockstep_data_parallel_create(lockstep_data_parallel** parallel, lockstep_runtime* runtime,
                                  const lockstep_array* weights, int count, const char* options) {
  return status_of([&] {
    checked(parallel, "the place of the data parallelism");
    auto made = std::make_unique<lockstep_data_parallel>();
    made->runtime = checked(runtime, "the runtime").runtime;
    const Communicator& hosts = made->runtime->control();
    std::vector<at::Tensor> tensors;
    DataParallelOptions chosen;
    lockstep::detail::Agreement(hosts, ExitCode::data).attempt([&] {
      chosen = data_parallel_options(text_of(options));
      tensors = kept(weights, count, "weight");
      for (const at::Tensor& tensor : tensors) {
        LOCKSTEP_CHECK_CODE(tensor.is_floating_point(), ExitCode::data, "weight: the dtype is ",
                            tensor.scalar_type(), "; a weight has real numbers");
      }
    });
    made->weights =
        std::make_unique<BorrowedWeights>(hosts.split(0, hosts.rank()), tensors, chosen);
    *parallel = made.release();
  });
}

int lockstep_data_parallel_average(lockstep_data_parallel* parallel,
                                   const lockstep_array* gradients, int count) {
  return status_of([&] {
    BorrowedWeights& weights = *checked(parallel, "the data parallelism").weights;
    std::vector<at::Tensor> tensors;
    lockstep::detail::Agreement(parallel->runtime->control(), ExitCode::data).attempt([&] {
      tensors = borrowed(gradients, count, "gradient");
      weights.require_fit(tensors);
    });
    write_gradients(weights.average(tensors), gradients);
  });
}

int lockstep_data_parallel_destroy(lockstep_data_parallel* parallel) {
  return status_of([&] { delete parallel; });
}

int lockstep_scaler_create(lockstep_scaler** scaler, lockstep_runtime* runtime,
                           const char* options) {
  return status_of([&] {
    checked(scaler, "the place of the scaler");
    auto made = std::make_unique<lockstep_scaler>();
    made->runtime = checked(runtime, "the runtime").runtime;
    lockstep::detail::Agreement(made->runtime->control()).attempt([&] {
      made->scaler = std::make_unique<GradientScaler>(scaler_options(text_of(options)),
                                                      made->runtime->control());
    });
    *scaler = made.release();
  });
}

int lockstep_scaler_unscale(lockstep_scaler* scaler, const lockstep_array* gradients, int count,
                            int* finite) {
  return status_of([&] {
    GradientScaler& own = *checked(scaler, "the scaler").scaler;
    std::vector<at::Tensor> tensors;
    lockstep::detail::Agreement(scaler->runtime->control(), ExitCode::data).attempt([&] {
      checked(finite, "finite");
      for (const at::Tensor& tensor : borrowed(gradients, count, "gradient")) {
        tensors.push_back(tensor.clone());
      }
    });
    *finite = own.unscale(tensors) ? 1 : 0;
    write_gradients(tensors, gradients);
  });
}

int lockstep_scaler_update(lockstep_scaler* scaler) {
  return status_of([&] { checked(scaler, "the scaler").scaler->update(); });
}

int lockstep_scaler_state(const lockstep_scaler* scaler, lockstep_scale* state) {
  return status_of([&] {
    const amp::ScalerState now = checked(scaler, "the scaler").scaler->state();
    checked(state, "the state") = {now.scale,
                                   now.growth_tracker,
                                   now.hysteresis_tracker,
                                   now.consecutive_skips,
                                   now.iteration,
                                   now.last_overflow,
                                   now.skipped};
  });
}

int lockstep_scaler_load(lockstep_scaler* scaler, const lockstep_scale* state) {
  return status_of([&] {
    const lockstep_scale& saved = checked(state, "the state");
    checked(scaler, "the scaler")
        .scaler->load({static_cast<float>(saved.scale), static_cast<int32_t>(saved.growth_tracker),
                       static_cast<int32_t>(saved.hysteresis_tracker),
                       static_cast<int32_t>(saved.consecutive_skips), saved.iteration,
                       saved.last_overflow, saved.skipped});
  });
}

int lockstep_scaler_destroy(lockstep_scaler* scaler) {
  return status_of([&] { delete scaler; });
}
