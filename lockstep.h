#pragma once

// Includes everything that a training program needs. The headers of each library can also be
// included one by one.

#include <lockstep/amp/autocast.h>
#include <lockstep/amp/fused_layers.h>
#include <lockstep/amp/loss_scaler.h>
#include <lockstep/amp/model.h>
#include <lockstep/amp/non_finite_tracer.h>
#include <lockstep/amp/optimizers.h>
#include <lockstep/amp/precision.h>
#include <lockstep/amp/schedule.h>
#include <lockstep/amp/sync_batch_norm.h>
#include <lockstep/checkpointing/activation/checkpoint.h>
#include <lockstep/checkpointing/activation/checkpoint_sequential.h>
#include <lockstep/checkpointing/activation/keep.h>
#include <lockstep/checkpointing/activation/memory_meter.h>
#include <lockstep/checkpointing/activation/offload.h>
#include <lockstep/checkpointing/activation/plan_checkpoints.h>
#include <lockstep/checkpointing/activation/planned_chain.h>
#include <lockstep/checkpointing/snapshot/load.h>
#include <lockstep/checkpointing/snapshot/newest.h>
#include <lockstep/checkpointing/snapshot/safetensors_writer.h>
#include <lockstep/checkpointing/snapshot/snapshot.h>
#include <lockstep/collectives/communicator.h>
#include <lockstep/collectives/error.h>
#include <lockstep/collectives/mpi_session.h>
#include <lockstep/runtime/cifar_file.h>
#include <lockstep/runtime/data_parallel.h>
#include <lockstep/runtime/distributed_sampler.h>
#include <lockstep/runtime/evaluate.h>
#include <lockstep/runtime/evaluation_scopes.h>
#include <lockstep/runtime/idx_file.h>
#include <lockstep/runtime/labelled_images.h>
#include <lockstep/runtime/load_weights.h>
#include <lockstep/runtime/loader.h>
#include <lockstep/runtime/loss.h>
#include <lockstep/runtime/metrics.h>
#include <lockstep/runtime/progress.h>
#include <lockstep/runtime/reduce_on_plateau.h>
#include <lockstep/runtime/run_log.h>
#include <lockstep/runtime/runtime.h>
#include <lockstep/runtime/step_report.h>
#include <lockstep/runtime/table.h>
#include <lockstep/runtime/trainer.h>
#include <lockstep/runtime/trainer_options.h>
#include <lockstep/runtime/validation_loader.h>
