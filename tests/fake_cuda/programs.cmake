# Which tests of lockstep's GPU programs run on the fake CUDA: all in fake_cuda.<entry>, but
#   fake_cuda_long_<entry>        patterns of GoogleTest: in fake_cuda.<entry>.long (label long);
#                                 "*": all of the program
#   fake_cuda_left_out_<program>  in no entry; the reason stands above.

# It enqueues products of 8192^3 and measures how long the host takes: here the host makes them.
set(fake_cuda_left_out_trainer.cuda TrainerOnCuda.AStepNeverWaitsForTheDevice)

# What the trainer's failure ends over NCCL is the communicator of all later tests, too.
set(fake_cuda_left_out_step.written_weights RenormedTables.ThatDifferBetweenRanksAreNamed
  RenormedTables.OfTheFunctionAreNamedWhereRanksDiffer)

# Over the staged transport, ranks use the device as one rank does: the quick entries are NCCL's.
foreach(program checkpointing.activation_ranks runtime.ranks step.averaged_buffers
    step.mixed_precision step.device_memory step.update_forms step.written_weights trainer.staged)
  set(fake_cuda_long_${program} *)
endforeach()

set(fake_cuda_long_amp.kernels CudaKernels.UpdateAsTheHostDoes
  CudaKernels.MoveManyParametersByLambAsTheHostDoes)
set(fake_cuda_long_amp.mixed_precision NonFiniteValues.OneBadElementAtEveryPosition
  SharedCasts.ALoopInOneRegionTrainsAsWithARegionForEachForward)
set(fake_cuda_long_checkpointing.activation
  PlanCheckpoints.PlanRunsAsPredictedOnAGpuWithThePlainGradients)
set(fake_cuda_long_checkpointing.activation_ranks.nccl
  ActivationBudget.EveryPrecisionEndsAtThePlainWeights)
set(fake_cuda_long_runtime.ranks.nccl *)
set(fake_cuda_long_step.averaged_buffers.nccl
  AveragedBuffers.FollowTheBuffersAtEachRealUpdate)
set(fake_cuda_long_step.update_forms.nccl StochasticRounding.TrainsWhereRoundingToNearestStalls)
set(fake_cuda_long_step.written_weights.nccl RenormedTables.AreThoseOfTheJoinedBatch
  WrittenWeights.LastAsInPlainLibTorchAndReachTheSnapshot)
set(fake_cuda_long_trainer.cuda TrainerOnCuda.RecordedStepsHaveTheBitsOfPlainOnes
  TrainerOnCuda.HasTheHostsLossCurveWithinABound)
