#pragma once

#include <lockstep/bindings/c/calls/borrowed_state.h>
#include <lockstep/bindings/c/calls/borrowed_weights.h>
#include <lockstep/bindings/c/calls/gradient_scaler.h>
#include <lockstep/bindings/c/calls/loaded_model.h>
#include <lockstep/bindings/c/lockstep.h>
#include <lockstep/bindings/c/text/trainer_text.h>
#include <lockstep/inputs/sample_buffer.h>
#include <lockstep/runtime/runtime.h>
#include <lockstep/runtime/step_report.h>
#include <lockstep/runtime/trainer.h>

#include <memory>
#include <optional>
#include <vector>

struct lockstep_runtime {
  std::shared_ptr<lockstep::Runtime> runtime;
};

struct lockstep_model {
  std::shared_ptr<lockstep::Runtime> runtime;
  std::shared_ptr<lockstep::c::LoadedModel> model;
};

struct lockstep_buffer {
  std::shared_ptr<lockstep::SampleBuffer> buffer;
};

/// Order of members: the Trainer is destroyed first, the Runtime last.
struct lockstep_trainer {
  std::shared_ptr<lockstep::Runtime> runtime;
  std::shared_ptr<lockstep::c::LoadedModel> model;
  lockstep::c::LossKind loss = lockstep::c::LossKind::output;
  lockstep::c::BorrowedState state;
  std::vector<std::shared_ptr<lockstep::SampleBuffer>> buffers;  // part of the snapshots
  std::unique_ptr<lockstep::Trainer> trainer;
  std::optional<lockstep::StepReport> report;  // of the last step
};

/// Order of members: the Runtime is destroyed last.
struct lockstep_data_parallel {
  std::shared_ptr<lockstep::Runtime> runtime;
  std::unique_ptr<lockstep::c::BorrowedWeights> weights;
};

struct lockstep_scaler {
  std::shared_ptr<lockstep::Runtime> runtime;
  std::unique_ptr<lockstep::c::GradientScaler> scaler;
};
