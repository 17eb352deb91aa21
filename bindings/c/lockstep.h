#ifndef LOCKSTEP_C_LOCKSTEP_H
#define LOCKSTEP_C_LOCKSTEP_H

/* The C interface: trains a model that was exported from Python, on arrays of the calling program.
 *
 *   lockstep_runtime* runtime;
 *   lockstep_model* model;
 *   lockstep_trainer* trainer;
 *   lockstep_runtime_create_on(&runtime, &comm, sizeof comm, "seed=1");
 *   lockstep_model_load(&model, runtime, "model.pt2");
 *   lockstep_trainer_create(&trainer, runtime, model, "loss=mse optimizer.lr=1e-3");
 *   lockstep_array x = {points, LOCKSTEP_FLOAT32, 2, {64, 3}, {0}};
 *   lockstep_array y = {values, LOCKSTEP_FLOAT32, 2, {64, 1}, {0}};
 *   if (lockstep_trainer_step(trainer, &x, 1, &y) != LOCKSTEP_OK) puts(lockstep_last_error());
 *
 * Every function that can fail returns a lockstep_status. Results are written through pointers, and
 * only on success. No exception leaves a function, and none ends the process.
 * Ranks: "collective" means that every rank of the runtime makes the call, in the same order and
 * with the same texts. If a collective call fails on one rank, every rank gets the same status and
 * a message that names the rank. Threads: one at a time. */

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Also the exit codes of programs that end because of these errors. */
typedef enum lockstep_status {
  LOCKSTEP_OK = 0,
  LOCKSTEP_USAGE = 2,       /* wrong arguments, options or calls */
  LOCKSTEP_ENVIRONMENT = 3, /* wrong rank count, missing device, missing library */
  LOCKSTEP_DATA = 10,       /* a file or an array cannot be used */
  LOCKSTEP_SNAPSHOT = 11,   /* a snapshot cannot be used */
  LOCKSTEP_PEER_LOST = 20,  /* a rank died or did not arrive in time: resume in a new process */
  LOCKSTEP_DIVERGED = 21,   /* replicas differ that must be equal */
  LOCKSTEP_NON_FINITE = 22, /* a NaN loss before the first update, or too many skipped updates */
  LOCKSTEP_OUT_OF_MEMORY = 23,
  LOCKSTEP_PREEMPTED = 75 /* stopped on request; a snapshot was saved */
} lockstep_status;

/* The message of the last call on this thread that failed; empty before. Valid until another call
 * fails on this thread. */
const char* lockstep_last_error(void);

typedef enum lockstep_dtype {
  LOCKSTEP_FLOAT32 = 1,
  LOCKSTEP_FLOAT64 = 2,
  LOCKSTEP_INT32 = 3,
  LOCKSTEP_INT64 = 4,
  /* For bindings of other languages: `data` is a text that says why the array cannot be used; the
   * call that gets the array returns it as its error. */
  LOCKSTEP_REFUSED = -1
} lockstep_dtype;

enum { LOCKSTEP_MAX_RANK = 8 };

/* An array of the program in host memory. It is borrowed while the call lasts and is not copied;
 * to another device the call copies it.
 * `strides`: distances in elements. All 0: row-major, as C arrays are. Column-major (Fortran) with
 * the index order kept: 1, shape[0], shape[0] * shape[1], ... An array to be written must not have
 * a stride of 0 otherwise. Negative: `data` is still the first element; the call copies the array.
 */
typedef struct lockstep_array {
  void* data;
  int dtype; /* lockstep_dtype */
  int rank;  /* number of dimensions, 0 to LOCKSTEP_MAX_RANK */
  int64_t shape[LOCKSTEP_MAX_RANK];
  int64_t strides[LOCKSTEP_MAX_RANK];
} lockstep_array;

/* Handles. They may be destroyed in any order: a trainer keeps its runtime and its model. A null
 * handle may be destroyed; other functions refuse it. */
typedef struct lockstep_runtime lockstep_runtime;
typedef struct lockstep_model lockstep_model;
typedef struct lockstep_trainer lockstep_trainer;

/* Option texts: "key=value" separated by blanks; a value with blanks stands in double quotes, but
 * for those after a comma. Keys are the names of the C++ options. NULL or "": the defaults. An
 * unknown key is refused (LOCKSTEP_USAGE); the message names the nearest keys.
 * Runtime (RuntimeOptions): seed, timeout (seconds), check_collectives, threads, device (cpu, cuda,
 * automatic), share_device, transport (automatic, nccl, staged), tf32, cudnn_benchmark,
 * deterministic. */

/* A runtime of all ranks that mpirun or srun started; of this process alone without them. MPI is
 * started unless the program has done so. Collective. */
int lockstep_runtime_create(lockstep_runtime** runtime, const char* options);
/* A runtime of the ranks of a communicator of the program; see lockstep::Runtime for the rules of
 * such a guest. `comm` points to an MPI_Comm, `size` is sizeof(MPI_Comm). Collective. */
int lockstep_runtime_create_on(lockstep_runtime** runtime, const void* comm, size_t size,
                               const char* options);
/* The same for the integer handle of Fortran (MPI_Fint, or comm%MPI_VAL). */
int lockstep_runtime_create_on_fortran(lockstep_runtime** runtime, int comm, const char* options);
/* -1 without a runtime. */
int lockstep_runtime_rank(const lockstep_runtime* runtime);
int lockstep_runtime_size(const lockstep_runtime* runtime);
/* With the last handle that uses the runtime, waits for the other ranks. Before MPI_Finalize. */
int lockstep_runtime_destroy(lockstep_runtime* runtime);

/* Reads a model: a file *.pt2 of torch.export.save(), else a TorchScript file. Collective. */
int lockstep_model_load(lockstep_model** model, lockstep_runtime* runtime, const char* path);
/* The same with options of ExportedModuleOptions, which a TorchScript file does not have: operators
 * (namespaces, separated by commas), without_no_grad (true: an archive of run_decompositions() may
 * have gradients). Collective. */
int lockstep_model_load_with(lockstep_model** model, lockstep_runtime* runtime, const char* path,
                             const char* options);
/* Runs the model in eval mode without gradients. `outputs` has one array of the right shape for
 * each tensor that the model returns, in the order of ExportedModule::output_names();
 * floating-point values are converted to the dtype of the array. Local. */
int lockstep_model_infer(lockstep_model* model, const lockstep_array* inputs, int input_count,
                         const lockstep_array* outputs, int output_count);
int lockstep_model_destroy(lockstep_model* model);

/* clang-format off
 * Options of a trainer:
 *   loss             required: mse, l1, cross_entropy (of the model's only output and the target,
 *                    mean over all elements or rows), or output (the model returns the loss)
 *   optimizer        AdamW (default), Adam, SGD, LAMB, Lion, with optimizer.lr, .weight_decay,
 *                    .beta1, .beta2, .eps, .momentum, .dampening, .nesterov, .moments (fp32, bf16)
 *                    as the optimizer has them, .no_decay_on_norms_and_biases
 *   precision        O0 (default), O1, O2, O3; with precision.compute (fp16, bf16), .wire,
 *                    .keep_fp32 and .norms (names, separated by commas), and others
 *   loss_scale       torch, apex, deepspeed, megatron, disabled, or a fixed number; with
 *                    loss_scale.init_scale and others
 *   schedule         Constant, WarmupLinear(w,t,floor), WarmupCosine(w,t,floor),
 *                    StepDecay(n,gamma), WarmupStableDecay(w,d,t,floor), OneCycle(t,...),
 *                    MultiStepDecay(a,b,...,gamma)
 *   others           as docs/options.md names those of TrainerOptions (first_bucket_bytes for
 *                    buckets.first_bucket_bytes), but for options that need calls of C++:
 *                    activation_chain, cuda_graph, local_updates, losses, reduce_on_plateau
 * Collective. clang-format on */
int lockstep_trainer_create(lockstep_trainer** trainer, lockstep_runtime* runtime,
                            lockstep_model* model, const char* options);
/* Completes a pending save. */
int lockstep_trainer_destroy(lockstep_trainer* trainer);
/* One micro-batch; every accumulate-th call makes the update. `target`: NULL with loss=output. For
 * cross_entropy it holds class numbers from 0, of either integer dtype, or probabilities in the
 * dtype of the output. Collective. */
int lockstep_trainer_step(lockstep_trainer* trainer, const lockstep_array* inputs, int input_count,
                          const lockstep_array* target);
/* With uneven_data: the step of a rank that has no micro-batch left. Collective. */
int lockstep_trainer_step_without_data(lockstep_trainer* trainer);

typedef struct lockstep_report {
  int closes_update;   /* 1: the micro-batch completed a window */
  int skipped;         /* 1: all ranks skipped the update */
  int all_out_of_data; /* 1: with uneven_data, no rank had a micro-batch */
  int stop_requested;  /* 1: a rank asked to stop: save and end */
  int64_t update;      /* real updates so far */
  int64_t micro_batch; /* micro-batches so far */
  double loss;         /* of this rank's last micro-batch */
  double grad_norm;    /* before clipping; NaN if skipped */
  double scale;        /* the loss scale of the step */
  double learning_rate;
} lockstep_report;
/* The values of the last step. On a device the call waits for the step. Local. */
int lockstep_trainer_report(lockstep_trainer* trainer, lockstep_report* report);

/* lockstep_model_infer() under the precision of the trainer. Local. */
int lockstep_trainer_infer(lockstep_trainer* trainer, const lockstep_array* inputs, int input_count,
                           const lockstep_array* outputs, int output_count);
/* The loss of these arrays in eval mode, without training. Of this rank; local. */
int lockstep_trainer_evaluate(lockstep_trainer* trainer, const lockstep_array* inputs,
                              int input_count, const lockstep_array* target, double* loss);

/* Registers an array of the program under `name`: saving stores its values, resuming writes them.
 * It is borrowed until the trainer is destroyed, and has no negative strides. Local, the same on
 * every rank. */
int lockstep_trainer_state(lockstep_trainer* trainer, const char* name,
                           const lockstep_array* array);
/* Saves a snapshot into snapshots.folder, or the folder of resume(). Collective. */
int lockstep_trainer_save(lockstep_trainer* trainer);
/* Waits until the last snapshot is on the disk. Collective. */
int lockstep_trainer_finish_saving(lockstep_trainer* trainer);
/* Continues from the newest complete snapshot in `folder` ("": snapshots.folder). `update`: its
 * number of updates, -1 if there is none; may be NULL. Collective. */
int lockstep_trainer_resume(lockstep_trainer* trainer, const char* folder, int64_t* update);
/* Loads weights only: a run, a snapshot or a safetensors file. Collective. */
int lockstep_trainer_load_weights(lockstep_trainer* trainer, const char* path);
int lockstep_trainer_set_learning_rate(lockstep_trainer* trainer, double rate);
/* Asks all ranks to stop: see lockstep_report. Local. */
int lockstep_trainer_request_stop(lockstep_trainer* trainer);
/* Makes SIGTERM and SIGUSR1 do that until the trainer is destroyed, and SIGINT in a program that no
 * launcher started and that does nothing about it; a second SIGINT ends the program. Local. */
int lockstep_trainer_stop_on_signals(lockstep_trainer* trainer);
/* Saves, waits for the disk and returns LOCKSTEP_PREEMPTED. Collective. */
int lockstep_trainer_save_and_leave(lockstep_trainer* trainer);

/* Samples of a running simulation; see lockstep::SampleBuffer. `like`: arrays with the shapes and
 * dtypes of a sample, the target last unless loss=output. Options: policy (ring, reservoir,
 * replay), capacity, capacity_bytes, batch_size. Part of the trainer's snapshots under `name`.
 * Local. */
typedef struct lockstep_buffer lockstep_buffer;
int lockstep_buffer_create(lockstep_buffer** buffer, lockstep_trainer* trainer, const char* name,
                           const lockstep_array* like, int count, const char* options);
int lockstep_buffer_push(lockstep_buffer* buffer, const lockstep_array* sample, int count);
int lockstep_buffer_size(const lockstep_buffer* buffer); /* -1 without a buffer */
int lockstep_buffer_destroy(lockstep_buffer* buffer);
/* lockstep_trainer_step() with a batch from the buffer. Collective. */
int lockstep_trainer_step_from(lockstep_trainer* trainer, lockstep_buffer* buffer);

/* Pieces for a loop of the program's own, which computes gradients of weights in its own arrays and
 * updates them itself:
 *   lockstep_scaler_state(scaler, &state);                   multiply the loss by state.scale
 *   lockstep_data_parallel_average(parallel, gradients, n);
 *   lockstep_scaler_unscale(scaler, gradients, n, &finite);  finite: update the weights
 *   lockstep_scaler_update(scaler); */

/* DataParallel over `weights`, which are borrowed until it is destroyed. The weights of rank 0 are
 * copied to all ranks. Options: wire (fp32, fp16, bf16), reduce (avg, sum). Collective. */
typedef struct lockstep_data_parallel lockstep_data_parallel;
int lockstep_data_parallel_create(lockstep_data_parallel** parallel, lockstep_runtime* runtime,
                                  const lockstep_array* weights, int count, const char* options);
/* Replaces the gradients, one for each weight, by their averages over the ranks, which have the
 * same bits on every rank. Collective. */
int lockstep_data_parallel_average(lockstep_data_parallel* parallel,
                                   const lockstep_array* gradients, int count);
int lockstep_data_parallel_destroy(lockstep_data_parallel* parallel);

/* amp::LossScaler. Options: policy (as loss_scale of a trainer), and the options of
 * LossScalerOptions: init_scale, growth_interval and others. Collective. */
typedef struct lockstep_scaler lockstep_scaler;
int lockstep_scaler_create(lockstep_scaler** scaler, lockstep_runtime* runtime,
                           const char* options);
/* Divides the gradients, of dtype LOCKSTEP_FLOAT32, by the scale. `finite`: 0 if one is not finite
 * on some rank: then no rank may update its weights. Once for each update. Collective. */
int lockstep_scaler_unscale(lockstep_scaler* scaler, const lockstep_array* gradients, int count,
                            int* finite);
/* Moves the scale, after lockstep_scaler_unscale(). LOCKSTEP_NON_FINITE after too many overflows in
 * a row. Collective. */
int lockstep_scaler_update(lockstep_scaler* scaler);

typedef struct lockstep_scale {
  double scale;
  int64_t growth_tracker;     /* clean updates since the last growth or overflow */
  int64_t hysteresis_tracker; /* overflows until the scale backs off, that one included */
  int64_t consecutive_skips;
  int64_t iteration;     /* updates made or skipped */
  int64_t last_overflow; /* iteration of the last overflow, or -1 */
  int64_t skipped;       /* total of skipped updates */
} lockstep_scale;
/* The scale and all counters; to be saved, and loaded by a later run. Local. */
int lockstep_scaler_state(const lockstep_scaler* scaler, lockstep_scale* state);
int lockstep_scaler_load(lockstep_scaler* scaler, const lockstep_scale* state);
int lockstep_scaler_destroy(lockstep_scaler* scaler);

#ifdef __cplusplus
}
#endif

#endif
