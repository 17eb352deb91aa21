/* A C program that trains: training FOLDER-OF-MODELS FOLDER-OF-SNAPSHOTS. Exits with 1 at the first
 * thing that is not as expected. */
#include <lockstep/c/lockstep.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kSamples = 6, kInputs = 3 };

static int rank = 0, ranks = 1;

#define EXPECT(condition)                                                                   \
  do {                                                                                      \
    if (!(condition)) {                                                                     \
      fprintf(stderr, "[rank %d] %s:%d: %s is false; the last error: %s\n", rank, __FILE__, \
              __LINE__, #condition, lockstep_last_error());                                 \
      exit(1);                                                                              \
    }                                                                                       \
  } while (0)
#define EXPECT_OK(call) EXPECT((call) == LOCKSTEP_OK)

static int says(const char* part) {
  return strstr(lockstep_last_error(), part) != NULL;
}

static void path_of(char* path, size_t size, const char* folder, const char* name) {
  EXPECT(snprintf(path, size, "%s/%s", folder, name) < (int)size);
}

static float points[kSamples][kInputs], values[kSamples][1];

/* Each rank has its own samples in each step. */
static void fill(int step) {
  for (int i = 0; i < kSamples; ++i) {
    float sum = 0;
    for (int j = 0; j < kInputs; ++j) {
      points[i][j] = (float)sin(0.7 * (i + 1) * (j + 2) + rank + 0.1 * step);
      sum += points[i][j];
    }
    values[i][0] = sum;
  }
}

static const lockstep_array kX = {points, LOCKSTEP_FLOAT32, 2, {kSamples, kInputs}, {0}};
static const lockstep_array kY = {values, LOCKSTEP_FLOAT32, 2, {kSamples, 1}, {0}};

static lockstep_trainer* new_trainer(lockstep_runtime* runtime, lockstep_model* model,
                                     const char* more) {
  char options[512];
  lockstep_trainer* trainer = NULL;
  snprintf(options, sizeof options,
           "loss=mse optimizer=AdamW optimizer.lr=0.01 schedule=WarmupCosine(5,100) "
           "clip_grad_norm=1 %s",
           more);
  EXPECT_OK(lockstep_trainer_create(&trainer, runtime, model, options));
  return trainer;
}

static void train(lockstep_trainer* trainer, int from, int to) {
  lockstep_report report;
  for (int step = from; step < to; ++step) {
    fill(step);
    EXPECT_OK(lockstep_trainer_step(trainer, &kX, 1, &kY));
    EXPECT_OK(lockstep_trainer_report(trainer, &report));
    EXPECT(report.closes_update && !report.skipped && !report.all_out_of_data);
    EXPECT(report.update == step + 1 && report.micro_batch == step + 1);
    EXPECT(report.scale == 1.0 && report.grad_norm > 0 && report.learning_rate > 0);
  }
}

static double evaluated(lockstep_trainer* trainer) {
  double loss = -1;
  fill(0);
  EXPECT_OK(lockstep_trainer_evaluate(trainer, &kX, 1, &kY, &loss));
  return loss;
}

static void infer(lockstep_trainer* trainer, float* result) {
  const lockstep_array output = {result, LOCKSTEP_FLOAT32, 2, {kSamples, 1}, {0}};
  fill(0);
  EXPECT_OK(lockstep_trainer_infer(trainer, &kX, 1, &output, 1));
}

/* An unbroken run, and one that is saved in the middle, destroyed and resumed. */
static void a_resumed_run_has_the_bits_of_an_unbroken_one(lockstep_runtime* runtime,
                                                          const char* models, const char* runs) {
  char path[4096], folder[4096], options[4200];
  lockstep_model* model = NULL;
  float unbroken[kSamples], resumed[kSamples];
  double counter = 0;
  const lockstep_array state = {&counter, LOCKSTEP_FLOAT64, 0, {0}, {0}};
  int64_t update = 0;
  path_of(path, sizeof path, models, "net.pt2");
  path_of(folder, sizeof folder, runs, "resumed");
  snprintf(options, sizeof options, "snapshots.folder=\"%s\"", folder);

  EXPECT_OK(lockstep_model_load(&model, runtime, path));
  lockstep_trainer* trainer = new_trainer(runtime, model, "");
  const double first = evaluated(trainer);
  train(trainer, 0, 20);
  EXPECT(evaluated(trainer) < first);
  infer(trainer, unbroken);
  EXPECT_OK(lockstep_trainer_destroy(trainer));
  EXPECT_OK(lockstep_model_destroy(model));

  EXPECT_OK(lockstep_model_load(&model, runtime, path));
  trainer = new_trainer(runtime, model, options);
  EXPECT_OK(lockstep_trainer_state(trainer, "counter", &state));
  EXPECT_OK(lockstep_trainer_resume(trainer, "", &update));
  EXPECT(update == -1);
  train(trainer, 0, 8);
  counter = 8.5;
  EXPECT_OK(lockstep_trainer_save(trainer));
  EXPECT_OK(lockstep_trainer_finish_saving(trainer));
  EXPECT_OK(lockstep_trainer_destroy(trainer));
  EXPECT_OK(lockstep_model_destroy(model));

  counter = 0;
  EXPECT_OK(lockstep_model_load(&model, runtime, path));
  trainer = new_trainer(runtime, model, options);
  EXPECT_OK(lockstep_trainer_resume(trainer, "", &update));
  EXPECT(update == 8);
  EXPECT_OK(lockstep_trainer_state(trainer, "counter", &state)); /* also after resuming */
  EXPECT(counter == 8.5);
  train(trainer, 8, 20);
  infer(trainer, resumed);
  EXPECT(memcmp(unbroken, resumed, sizeof unbroken) == 0);
  EXPECT_OK(lockstep_trainer_destroy(trainer));
  EXPECT_OK(lockstep_model_destroy(model));
}

static void every_rank_learns_of_an_error_of_one(lockstep_runtime* runtime, const char* models) {
  char path[4096];
  lockstep_model* model = NULL;
  lockstep_array wrong = kX;
  const int last = ranks - 1;
  path_of(path, sizeof path, models, "net.pt2");
  EXPECT_OK(lockstep_model_load(&model, runtime, path));
  lockstep_trainer* trainer = new_trainer(runtime, model, "");
  char name[32];
  snprintf(name, sizeof name, "rank %d", last);

  if (rank == last) {
    wrong.dtype = 77;
  }
  fill(0);
  EXPECT(lockstep_trainer_step(trainer, &wrong, 1, &kY) == LOCKSTEP_DATA);
  EXPECT(says("dtype is 77"));
  EXPECT(ranks == 1 || says(name));
  train(trainer, 0, 2); /* the trainer goes on */

  lockstep_model* other = NULL;
  EXPECT(lockstep_model_load(&other, runtime, rank == last ? "/nowhere.pt2" : path) ==
         LOCKSTEP_DATA);
  EXPECT(other == NULL && says("/nowhere.pt2"));
  lockstep_trainer* second = NULL;
  EXPECT(lockstep_trainer_create(&second, runtime, model,
                                 rank == last ? "loss=mse acumulate=2" : "loss=mse") ==
         LOCKSTEP_USAGE);
  EXPECT(second == NULL && says("\"acumulate\" is no option") && says("\"accumulate\""));
  EXPECT_OK(lockstep_trainer_destroy(trainer));
  EXPECT_OK(lockstep_model_destroy(model));
}

static void a_request_to_stop_reaches_all_ranks(lockstep_runtime* runtime, const char* models,
                                                const char* runs) {
  char path[4096], folder[4096];
  lockstep_model* model = NULL;
  lockstep_report report;
  path_of(path, sizeof path, models, "net.pt2");
  path_of(folder, sizeof folder, runs, "stopped");
  EXPECT_OK(lockstep_model_load(&model, runtime, path));
  lockstep_trainer* trainer = new_trainer(runtime, model, "");
  EXPECT(lockstep_trainer_report(trainer, &report) == LOCKSTEP_USAGE);
  EXPECT_OK(lockstep_trainer_resume(trainer, folder, NULL));
  if (rank == ranks - 1) {
    EXPECT_OK(lockstep_trainer_request_stop(trainer));
  }
  train(trainer, 0, 1);
  EXPECT_OK(lockstep_trainer_report(trainer, &report));
  EXPECT(report.stop_requested);
  EXPECT(lockstep_trainer_save_and_leave(trainer) == LOCKSTEP_PREEMPTED);
  EXPECT(says("update 1"));
  EXPECT_OK(lockstep_trainer_destroy(trainer));
  EXPECT_OK(lockstep_model_destroy(model));
}

int main(int argc, char** argv) {
  int level = 0;
  lockstep_runtime* runtime = NULL;
  MPI_Comm all = MPI_COMM_WORLD;
  EXPECT(argc == 3);
  EXPECT(strcmp(lockstep_last_error(), "") == 0);
  EXPECT(lockstep_runtime_rank(NULL) == -1 && lockstep_runtime_size(NULL) == -1);
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);

  EXPECT_OK(lockstep_runtime_create_on(&runtime, &all, sizeof all, "seed=5 threads=1 device=cpu"));
  EXPECT(lockstep_runtime_rank(runtime) == rank && lockstep_runtime_size(runtime) == ranks);
  a_resumed_run_has_the_bits_of_an_unbroken_one(runtime, argv[1], argv[2]);
  every_rank_learns_of_an_error_of_one(runtime, argv[1]);
  a_request_to_stop_reaches_all_ranks(runtime, argv[1], argv[2]);
  EXPECT_OK(lockstep_runtime_destroy(runtime));

  EXPECT_OK(lockstep_runtime_create_on_fortran(&runtime, (int)MPI_Comm_c2f(MPI_COMM_WORLD), NULL));
  EXPECT(lockstep_runtime_size(runtime) == ranks);
  EXPECT_OK(lockstep_runtime_destroy(runtime));
  EXPECT_OK(lockstep_runtime_create(&runtime, "")); /* finds MPI started */
  EXPECT(lockstep_runtime_size(runtime) == ranks);
  EXPECT_OK(lockstep_runtime_destroy(runtime));
  MPI_Finalize();
  if (rank == 0) {
    puts("all as expected");
  }
  return 0;
}
