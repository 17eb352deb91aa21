#pragma once

#include <lockstep/amp/model.h>
#include <lockstep/amp/precision.h>
#include <lockstep/runtime/storage/impl/exact_values.h>

#include <string>

namespace lockstep::detail {

/// Lines for Trainer::summary(): what is stored in 16 bits and why, and the classes of norms.
/// Local.
std::string stored_dtypes(const Model& model, const Precision& precision, const ExactValues& exact);

}  // namespace lockstep::detail
