#pragma once

#include <torch/nn.h>

#include <memory>
#include <string>

/// Adds a module that only gives its children a part of their names: the weights of what is
/// registered in the group "attention" are named "attention....".
inline torch::nn::Module& named_group(torch::nn::Module& parent, const std::string& name) {
  return *parent.register_module(name, std::make_shared<torch::nn::Module>());
}
