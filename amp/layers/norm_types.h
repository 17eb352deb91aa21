#pragma once

#include <string>

namespace lockstep::detail {

/// True for the type name of a normalisation layer: BatchNorm2d, LayerNormImpl, SyncBatchNorm,
/// T5LayerNorm, LlamaRMSNorm... Qualified names are read from their last part.
bool is_norm_type(const std::string& type_name);

}  // namespace lockstep::detail
