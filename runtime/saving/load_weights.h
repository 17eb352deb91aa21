#pragma once

#include <lockstep/amp/model.h>
#include <lockstep/checkpointing/snapshot/load.h>

#include <string>

namespace lockstep {

/// Loads weights and buffers into a model, without a Trainer: to use a trained model, or before the
/// Trainer is made. `path` is the folder of a run, a snapshot, a safetensors file or folder, or
/// model.safetensors.index.json. In the folder of a run the newest undamaged snapshot is used.
/// Values are converted to the dtype of the parameter; the parameter stays the same tensor. A tied
/// weight is loaded under any of its names. LoadOptions::averaged takes the moving averages of the
/// snapshot. A Trainer that already trains the model has its own
/// load_weights(), which sets the masters too.
///
///   lockstep::snapshot::LoadOptions options;  // GPT-2 of Hugging Face: c_attn, c_proj, c_fc
///   options.transposed = [](const std::string& name) { return name.find("c_") != name.npos; };
///   lockstep::load_weights(model, "gpt2/model.safetensors", options);
///
/// Throws Error (exit code snapshot) and loads nothing if names or sizes do not match, unless
/// LoadOptions::match is partial and one of them does, or if bytes are damaged. The Error lists
/// every mismatch. Ranks: local; each rank that calls it reads the files. Threads: one.
snapshot::LoadReport load_weights(const Model& model, const std::string& path,
                                  const snapshot::LoadOptions& options = {});

}  // namespace lockstep
