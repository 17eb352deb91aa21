#pragma once

#include <lockstep/amp/optimizer.h>
#include <lockstep/collectives/core/agreement.h>
#include <lockstep/runtime/data_parallel.h>
#include <lockstep/runtime/train_epochs.h>
#include <lockstep/runtime/trainer_options.h>

#include <string>
#include <utility>
#include <vector>

namespace lockstep::detail {

/// Names and values of options, as text: equal lists mean equal options.
using OptionFields = std::vector<std::pair<std::string, std::string>>;

/// Every field of TrainerOptions and of the options in it. Functions, as that of a
/// ScheduleFunction, have no text.
OptionFields fields_of(const TrainerOptions& options);
OptionFields fields_of(const DataParallelOptions& options);
OptionFields fields_of(const EpochOptions& options);

/// Throws the same Error on every rank unless the fields are equal on all of them. The message
/// names only the fields that differ, with the values and their ranks. `what` has the options: "the
/// Trainer". Collective.
void require_same_fields(const std::string& what, const OptionFields& fields,
                         const Agreement& agreement);
/// The same for all that a Trainer is made with, the group of each parameter included. Collective.
void require_same_options(const TrainerOptions& options, const OptimizerSpec& optimizer,
                          const std::vector<ModelTensor>& parameters, const Agreement& agreement);

}  // namespace lockstep::detail
