#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace lockstep::detail {

/// This rank's random generators by name: of the host, and of `device` if that is a GPU.
std::vector<std::pair<std::string, at::Generator>> generators(c10::Device device);

/// The states of generators(), in that order.
std::vector<at::Tensor> states_of_generators(c10::Device device);
void set_states_of_generators(c10::Device device, const std::vector<at::Tensor>& states);

}  // namespace lockstep::detail
