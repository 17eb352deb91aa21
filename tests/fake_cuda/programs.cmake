# Which tests of lockstep's GPU programs run on the fake CUDA: all in fake_cuda.<entry>, but
#   fake_cuda_long_<entry>        patterns of GoogleTest: in fake_cuda.<entry>.long (label long);
#                                 "*": all of the program
#   fake_cuda_left_out_<program>  in no entry; the reason stands above.

# It enqueues products of 8192^3 and measures how long the host takes: here the host makes them.
set(fake_cuda_left_out_trainer.cuda TrainerOnCuda.AStepNeverWaitsForTheDevice)

# What the trainer's failure ends over NCCL is the communicator of all later tests, too.
set(fake_cuda_left_out_step.written_weights RenormedTables.ThatDifferBetweenRanksAreNamed
  RenormedTables.OfTheFunctionAreNamedWhereRanksDiffer)

set(fake_cuda_long_amp.kernels CudaKernels.UpdateAsTheHostDoes
  CudaKernels.MoveManyParametersByLambAsTheHostDoes FusedLinearCrossEntropy.*)
set(fake_cuda_long_amp.mixed_precision NonFiniteValues.OneBadElementAtEveryPosition
  SharedCasts.ALoopInOneRegionTrainsAsWithARegionForEachForward)
set(fake_cuda_long_checkpointing.activation
  PlanCheckpoints.PlanRunsAsPredictedOnAGpuWithThePlainGradients)
set(fake_cuda_long_trainer.cuda TrainerOnCuda.RecordedStepsHaveTheBitsOfPlainOnes
  TrainerOnCuda.HasTheHostsLossCurveWithinABound)
