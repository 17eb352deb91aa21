#pragma once

#include <string>

namespace lockstep::detail {

/// "acme::LayerNormImpl" is "LayerNorm".
std::string plain_type_name(const std::string& type_name);

/// True for the type name of a normalisation layer: BatchNorm2d, LayerNormImpl, SyncBatchNorm,
/// T5LayerNorm, LlamaRMSNorm, RmsNorm, Norm... For a qualified name the last part decides.
bool is_norm_type(const std::string& type_name);

}  // namespace lockstep::detail
