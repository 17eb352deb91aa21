#pragma once

#include <nccl.h>

#include <memory>
#include <string>

#include "communicator.h"

namespace fake_cuda {

using Comm = std::shared_ptr<ncclComm>;

/// The communicators that the program has.
Comm find_comm(ncclComm_t handle);
void add_comm(const Comm& comm);
void remove_comm(const Comm& comm);

/// The text of the last error of the process, for ncclGetLastError().
void set_last_error(const std::string& text);
std::string last_error();

}  // namespace fake_cuda
