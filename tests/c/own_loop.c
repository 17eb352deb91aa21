/* A loop of the program's own over DataParallel and the loss scaler: a line is fitted to the
 * samples of all ranks, with gradients that the program computes. Exits with 1 at the first thing
 * that is not as expected. */
#include <lockstep/c/lockstep.h>
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { kSamples = 4, kSteps = 12, kSpoiled = 5 };

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

static float sample(int of_rank, int i) {
  return (float)(0.25 * i + 0.5 * of_rank - 0.75);
}

/* The gradient of the mean squared error of slope * x + offset against 3 * x - 1. */
static void gradient(int of_rank, const float* line, double scale, double* sums) {
  for (int i = 0; i < kSamples; ++i) {
    const double x = sample(of_rank, i);
    const double error = line[0] * x + line[1] - (3 * x - 1);
    sums[0] += scale * 2 * error * x / kSamples;
    sums[1] += scale * 2 * error / kSamples;
  }
}

static void expect_the_same_bits_on_all_ranks(const float* line) {
  float first[2];
  memcpy(first, line, sizeof first);
  MPI_Bcast(first, 2, MPI_FLOAT, 0, MPI_COMM_WORLD);
  EXPECT(memcmp(first, line, sizeof first) == 0);
}

static void fit(lockstep_runtime* runtime) {
  float line[2] = {(float)rank, (float)(7 - rank)}; /* rank 0's count */
  float slope = 0, offset = 0;
  const lockstep_array weights[2] = {{&line[0], LOCKSTEP_FLOAT32, 0, {0}, {0}},
                                     {&line[1], LOCKSTEP_FLOAT32, 0, {0}, {0}}};
  const lockstep_array gradients[2] = {{&slope, LOCKSTEP_FLOAT32, 0, {0}, {0}},
                                       {&offset, LOCKSTEP_FLOAT32, 0, {0}, {0}}};
  lockstep_data_parallel* parallel = NULL;
  lockstep_scaler* scaler = NULL;
  lockstep_scale scale;
  int finite = 0;
  EXPECT_OK(lockstep_data_parallel_create(&parallel, runtime, weights, 2, ""));
  EXPECT(line[0] == 0 && line[1] == 7);
  EXPECT_OK(lockstep_scaler_create(&scaler, runtime, "policy=apex init_scale=1024"));
  for (int step = 0; step < kSteps; ++step) {
    double mine[2] = {0, 0}, all[2] = {0, 0};
    EXPECT_OK(lockstep_scaler_state(scaler, &scale));
    EXPECT(scale.scale == (step > kSpoiled ? 512 : 1024) && scale.iteration == step);
    gradient(rank, line, scale.scale, mine);
    for (int other = 0; other < ranks; ++other) {
      gradient(other, line, 1.0 / ranks, all);
    }
    slope = step == kSpoiled && rank == ranks - 1 ? INFINITY : (float)mine[0];
    offset = (float)mine[1];
    EXPECT_OK(lockstep_data_parallel_average(parallel, gradients, 2));
    EXPECT_OK(lockstep_scaler_unscale(scaler, gradients, 2, &finite));
    EXPECT(finite == (step != kSpoiled));
    if (finite) {
      EXPECT(fabs(slope - all[0]) < 1e-5 * (1 + fabs(all[0])));
      EXPECT(fabs(offset - all[1]) < 1e-5 * (1 + fabs(all[1])));
      line[0] -= 0.3f * slope;
      line[1] -= 0.3f * offset;
    }
    EXPECT_OK(lockstep_scaler_update(scaler));
    expect_the_same_bits_on_all_ranks(line);
  }
  EXPECT_OK(lockstep_scaler_state(scaler, &scale));
  EXPECT(scale.skipped == 1 && scale.last_overflow == kSpoiled);
  scale.scale = 4096;
  EXPECT_OK(lockstep_scaler_load(scaler, &scale));
  EXPECT_OK(lockstep_scaler_state(scaler, &scale));
  EXPECT(scale.scale == 4096 && scale.iteration == kSteps);
  EXPECT_OK(lockstep_scaler_destroy(scaler));
  EXPECT_OK(lockstep_data_parallel_destroy(parallel));
}

static void errors_reach_all_ranks(lockstep_runtime* runtime) {
  float line[2] = {0, 0}, gradient[2] = {1, 1};
  int finite = 0;
  const lockstep_array weight = {line, LOCKSTEP_FLOAT32, 1, {2}, {0}};
  const lockstep_array right = {gradient, LOCKSTEP_FLOAT32, 1, {2}, {0}};
  lockstep_array wrong = right;
  lockstep_data_parallel* parallel = NULL;
  lockstep_scaler* scaler = NULL;
  EXPECT(lockstep_data_parallel_create(&parallel, runtime, &weight, 1, "wire=fp8") ==
         LOCKSTEP_USAGE);
  EXPECT(lockstep_scaler_create(&scaler, runtime, "init_scal=2") == LOCKSTEP_USAGE);
  EXPECT(parallel == NULL && scaler == NULL);
  EXPECT(strstr(lockstep_last_error(), "\"init_scale\"") != NULL);
  EXPECT_OK(lockstep_data_parallel_create(&parallel, runtime, &weight, 1, "reduce=sum"));
  EXPECT_OK(lockstep_scaler_create(&scaler, runtime, NULL));
  wrong.shape[0] = rank == ranks - 1 ? 1 : 2;
  EXPECT(lockstep_data_parallel_average(parallel, &wrong, 1) == LOCKSTEP_DATA);
  EXPECT(strstr(lockstep_last_error(), "gradient 0 is Float [1], its weight Float [2]") != NULL);
  EXPECT(lockstep_scaler_update(scaler) == LOCKSTEP_USAGE);
  EXPECT_OK(lockstep_data_parallel_average(parallel, &right, 1));
  EXPECT(gradient[0] == ranks && gradient[1] == ranks);
  EXPECT_OK(lockstep_scaler_unscale(scaler, &right, 1, &finite));
  EXPECT(finite && gradient[0] == (float)(ranks / 65536.0));
  EXPECT(lockstep_scaler_unscale(NULL, &right, 1, &finite) == LOCKSTEP_USAGE);
  EXPECT_OK(lockstep_scaler_destroy(scaler));
  EXPECT_OK(lockstep_data_parallel_destroy(parallel));
}

int main(int argc, char** argv) {
  int level = 0;
  lockstep_runtime* runtime = NULL;
  MPI_Comm all = MPI_COMM_WORLD;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  EXPECT_OK(lockstep_runtime_create_on(&runtime, &all, sizeof all, "threads=1 device=cpu"));
  fit(runtime);
  errors_reach_all_ranks(runtime);
  EXPECT_OK(lockstep_runtime_destroy(runtime));
  MPI_Finalize();
  if (rank == 0) {
    puts("all as expected");
  }
  return 0;
}
