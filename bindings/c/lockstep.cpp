#include <c10/core/GradMode.h>
#include <lockstep/bindings/c/calls/arguments.h>
#include <lockstep/bindings/c/calls/arrays.h>
#include <lockstep/bindings/c/calls/handles.h>
#include <lockstep/bindings/c/calls/losses.h>
#include <lockstep/bindings/c/calls/status.h>
#include <lockstep/bindings/c/lockstep.h>
#include <lockstep/bindings/c/text/buffer_text.h>
#include <lockstep/bindings/c/text/model_text.h>
#include <lockstep/bindings/c/text/runtime_text.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/collectives/impl/as_error.h>

#include <cstring>
#include <exception>

// The functions of lockstep.h, in its order; those for loops of the program's own: own_loop.cpp.

namespace {

using namespace lockstep;
using namespace lockstep::c;

/// The Trainer of a handle.
Trainer& trainer_of(lockstep_trainer* handle) {
  return *checked(handle, "the trainer").trainer;
}

template <typename Comm>
MpiCommHandle comm_at(const void* place) {
  Comm comm;
  std::memcpy(&comm, place, sizeof comm);
  return MpiCommHandle(comm);
}

/// An MPI_Comm is an int in some MPI libraries and a pointer in the others.
MpiCommHandle comm_at(const void* place, size_t size) {
  struct Pointed;
  LOCKSTEP_CHECK(place != nullptr, "comm is NULL");
  LOCKSTEP_CHECK(size == sizeof(int) || size == sizeof(Pointed*), "the size of comm is ", size,
                 "; expected sizeof(MPI_Comm)");
  return size == sizeof(int) ? comm_at<int>(place) : comm_at<Pointed*>(place);
}

template <typename... Arguments>
void make_runtime(lockstep_runtime** handle, const char* options, const Arguments&... arguments) {
  checked(handle, "the place of the runtime");
  auto made = std::make_unique<lockstep_runtime>();
  made->runtime = std::make_shared<Runtime>(arguments..., runtime_options(text_of(options)));
  *handle = made.release();
}

/// Runs `body`; an error of LibTorch, which knows no names, gets those of the arrays.
template <typename Body>
auto with_names(const std::vector<at::Tensor>& inputs, const at::Tensor& target, const Body& body) {
  try {
    return body();
  } catch (const Error&) {
    throw;
  } catch (...) {
    const Error error = lockstep::detail::as_error(std::current_exception());
    if (error.code() != ExitCode::usage) {
      throw;
    }
    throw Error(c10::str(error.what(), "\nThe arrays of this call: ", described(inputs, target)));
  }
}

void infer(LoadedModel& model, c10::Device device, const lockstep_array* inputs, int input_count,
           const lockstep_array* outputs, int output_count) {
  const c10::AutoGradMode no_grad(false);
  const auto mode = model.eval_mode();
  const std::vector<at::Tensor> arrays = borrowed(inputs, input_count, "input");
  write(with_names(arrays, {}, [&] { return model.outputs(moved(arrays, device)); }), outputs,
        output_count);
}

/// The loss for tensors on the host; `target` may be undefined.
at::Tensor loss_of_tensors(lockstep_trainer& handle, const std::vector<at::Tensor>& inputs,
                           const at::Tensor& target) {
  return with_names(inputs, target, [&] {
    return loss_of(handle.loss, handle.model->outputs(moved(inputs, handle.trainer->device())),
                   target);
  });
}

at::Tensor loss_of_arrays(lockstep_trainer& handle, const lockstep_array* inputs, int input_count,
                          const lockstep_array* target) {
  return loss_of_tensors(handle, borrowed(inputs, input_count, "input"),
                         target == nullptr ? at::Tensor() : borrowed(*target, "the target"));
}

/// The loss of a batch. Its last tensor is the target, unless the model computes the loss.
at::Tensor loss_of_batch(lockstep_trainer& handle, std::vector<at::Tensor> batch) {
  at::Tensor target;
  if (handle.loss != LossKind::output) {
    target = batch.back();
    batch.pop_back();
  }
  return loss_of_tensors(handle, batch, target);
}

}  // namespace

const char* lockstep_last_error() {
  return last_error();
}

int lockstep_runtime_create(lockstep_runtime** runtime, const char* options) {
  return status_of([&] { make_runtime(runtime, options, 0, static_cast<char**>(nullptr)); });
}

int lockstep_runtime_create_on(lockstep_runtime** runtime, const void* comm, size_t size,
                               const char* options) {
  return status_of([&] { make_runtime(runtime, options, comm_at(comm, size)); });
}

int lockstep_runtime_create_on_fortran(lockstep_runtime** runtime, int comm, const char* options) {
  return status_of([&] { make_runtime(runtime, options, MpiCommHandle::from_fortran(comm)); });
}

int lockstep_runtime_rank(const lockstep_runtime* runtime) {
  return runtime == nullptr ? -1 : runtime->runtime->rank();
}

int lockstep_runtime_size(const lockstep_runtime* runtime) {
  return runtime == nullptr ? -1 : runtime->runtime->size();
}

int lockstep_runtime_destroy(lockstep_runtime* runtime) {
  return status_of([&] { delete runtime; });
}

int lockstep_model_load(lockstep_model** model, lockstep_runtime* runtime, const char* path) {
  return lockstep_model_load_with(model, runtime, path, nullptr);
}

int lockstep_model_load_with(lockstep_model** model, lockstep_runtime* runtime, const char* path,
                             const char* options) {
  return status_of([&] {
    checked(model, "the place of the model");
    auto made = std::make_unique<lockstep_model>();
    made->runtime = checked(runtime, "the runtime").runtime;
    ExportedModuleOptions read_options;
    lockstep::detail::Agreement(made->runtime->control()).attempt([&] {
      read_options = model_options(text_of(options));
      LOCKSTEP_CHECK(text_of(options).empty() || LoadedModel::is_exported(text_of(path)),
                     "a TorchScript file such as ", text_of(path), " has no options; \"", options,
                     "\" is for a file *.pt2 of torch.export.save()");
    });
    const lockstep::detail::Agreement agreement(made->runtime->control(), ExitCode::data);
    agreement.attempt("loading the model",
                      [&] { made->model = LoadedModel::read(text_of(path), read_options); });
    *model = made.release();
  });
}

int lockstep_model_infer(lockstep_model* model, const lockstep_array* inputs, int input_count,
                         const lockstep_array* outputs, int output_count) {
  return status_of([&] {
    LoadedModel& loaded = *checked(model, "the model").model;
    infer(loaded, loaded.device(), inputs, input_count, outputs, output_count);
  });
}

int lockstep_model_destroy(lockstep_model* model) {
  return status_of([&] { delete model; });
}

int lockstep_trainer_create(lockstep_trainer** trainer, lockstep_runtime* runtime,
                            lockstep_model* model, const char* options) {
  return status_of([&] {
    checked(trainer, "the place of the trainer");
    auto made = std::make_unique<lockstep_trainer>();
    made->runtime = checked(runtime, "the runtime").runtime;
    made->model = checked(model, "the model").model;
    TrainerText text;
    lockstep::detail::Agreement(made->runtime->control()).attempt([&] {
      text = trainer_text(text_of(options));
    });
    made->loss = text.loss;
    made->trainer = std::make_unique<Trainer>(*made->runtime, made->model->model(), *text.optimizer,
                                              text.options);
    *trainer = made.release();
  });
}

int lockstep_trainer_destroy(lockstep_trainer* trainer) {
  return status_of([&] { delete trainer; });
}

int lockstep_trainer_step(lockstep_trainer* trainer, const lockstep_array* inputs, int input_count,
                          const lockstep_array* target) {
  return status_of([&] {
    // Arrays are checked in the closure, so an error of one rank becomes an Error of all ranks.
    checked(trainer, "the trainer").report = trainer_of(trainer).step(
        [&]() -> Loss { return loss_of_arrays(*trainer, inputs, input_count, target); });
  });
}

int lockstep_trainer_step_without_data(lockstep_trainer* trainer) {
  return status_of(
      [&] { checked(trainer, "the trainer").report = trainer_of(trainer).step_without_data(); });
}

int lockstep_trainer_report(lockstep_trainer* trainer, lockstep_report* report) {
  return status_of([&] {
    checked(report, "the report");
    const auto& last = checked(trainer, "the trainer").report;
    LOCKSTEP_CHECK(last, "there is no report before the first step of the trainer");
    *report = {last->closes_update() ? 1 : 0,
               last->skipped() ? 1 : 0,
               last->all_out_of_data() ? 1 : 0,
               trainer->trainer->stop_requested() ? 1 : 0,
               last->update(),
               last->micro_batch(),
               last->loss(),
               last->grad_norm(),
               last->scale(),
               last->learning_rate()};
  });
}

int lockstep_trainer_infer(lockstep_trainer* trainer, const lockstep_array* inputs, int input_count,
                           const lockstep_array* outputs, int output_count) {
  return status_of([&] {
    const amp::Autocast region = trainer_of(trainer).autocast();
    infer(*trainer->model, trainer->trainer->device(), inputs, input_count, outputs, output_count);
  });
}

int lockstep_trainer_evaluate(lockstep_trainer* trainer, const lockstep_array* inputs,
                              int input_count, const lockstep_array* target, double* loss) {
  return status_of([&] {
    checked(loss, "loss");
    const amp::Autocast region = trainer_of(trainer).autocast();
    const c10::AutoGradMode no_grad(false);
    const auto mode = trainer->model->eval_mode();
    *loss = loss_of_arrays(*trainer, inputs, input_count, target).item<double>();
  });
}

int lockstep_trainer_state(lockstep_trainer* trainer, const char* name,
                           const lockstep_array* array) {
  return status_of([&] {
    checked(trainer, "the trainer")
        .state.add(trainer_of(trainer), text_of(name),
                   kept(checked(array, "the array"), "state " + text_of(name)));
  });
}

int lockstep_trainer_save(lockstep_trainer* trainer) {
  return status_of([&] { trainer_of(trainer).save(); });
}

int lockstep_trainer_finish_saving(lockstep_trainer* trainer) {
  return status_of([&] {
    const auto result = trainer_of(trainer).finish_saving();
    LOCKSTEP_CHECK_CODE(!result || !result->error, result->code, *result->error);
  });
}

int lockstep_trainer_resume(lockstep_trainer* trainer, const char* folder, int64_t* update) {
  return status_of([&] {
    const ResumeReport report = trainer_of(trainer).resume(text_of(folder));
    lockstep::detail::Agreement(trainer->runtime->control(), ExitCode::snapshot).attempt([&] {
      trainer->state.write_restored();
    });
    if (update != nullptr) {
      *update = report.resumed ? report.update : -1;
    }
  });
}

int lockstep_trainer_load_weights(lockstep_trainer* trainer, const char* path) {
  return status_of([&] { trainer_of(trainer).load_weights(text_of(path)); });
}

int lockstep_trainer_set_learning_rate(lockstep_trainer* trainer, double rate) {
  return status_of([&] { trainer_of(trainer).set_learning_rate(rate); });
}

int lockstep_trainer_request_stop(lockstep_trainer* trainer) {
  return status_of([&] { trainer_of(trainer).request_stop(); });
}

int lockstep_trainer_stop_on_signals(lockstep_trainer* trainer) {
  return status_of([&] { trainer_of(trainer).stop_on_signals(); });
}

int lockstep_trainer_save_and_leave(lockstep_trainer* trainer) {
  return status_of([&] { trainer_of(trainer).save_and_leave(); });
}

int lockstep_buffer_create(lockstep_buffer** buffer, lockstep_trainer* trainer, const char* name,
                           const lockstep_array* like, int count, const char* options) {
  return status_of([&] {
    checked(buffer, "the place of the buffer");
    Trainer& owner = trainer_of(trainer);
    const auto tensors = borrowed(like, count, "like");
    LOCKSTEP_CHECK(trainer->loss == LossKind::output || count >= 2, "a sample has ", count,
                   " array; with this loss it has inputs and a target");
    auto made = std::make_unique<lockstep_buffer>();
    made->buffer = std::make_shared<SampleBuffer>(*trainer->runtime, tensors,
                                                  buffer_options(text_of(options)));
    trainer->buffers.push_back(made->buffer);  // first: the Trainer has pointers into the buffer
    made->buffer->save_in(owner, text_of(name));
    *buffer = made.release();
  });
}

int lockstep_buffer_push(lockstep_buffer* buffer, const lockstep_array* sample, int count) {
  return status_of(
      [&] { checked(buffer, "the buffer").buffer->push(borrowed(sample, count, "part")); });
}

int lockstep_buffer_size(const lockstep_buffer* buffer) {
  return buffer == nullptr ? -1 : static_cast<int>(buffer->buffer->size());
}

int lockstep_buffer_destroy(lockstep_buffer* buffer) {
  return status_of([&] { delete buffer; });
}

int lockstep_trainer_step_from(lockstep_trainer* trainer, lockstep_buffer* buffer) {
  return status_of([&] {
    SampleBuffer& samples = *checked(buffer, "the buffer").buffer;
    std::vector<at::Tensor> batch;  // drawn once: a diagnosis runs the closure again
    checked(trainer, "the trainer").report = trainer_of(trainer).step([&]() -> Loss {
      batch = batch.empty() ? samples.batch() : batch;
      return loss_of_batch(*trainer, batch);
    });
  });
}
