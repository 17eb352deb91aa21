#pragma once
static_assert(LOCKSTEP_OWN_LIBRARY, "not for programs: include <lockstep/lockstep.h> instead");

#include <lockstep/collectives/impl/option_list.h>
#include <lockstep/runtime/runtime.h>

namespace lockstep::detail {

// The names of the choices in environment variables and in texts of options.
LOCKSTEP_OPTION_NAMES(DeviceKind, "cpu", "cuda", "automatic");
LOCKSTEP_OPTION_NAMES(DeviceTransport, "automatic", "nccl", "staged");

/// Applies the environment variables of a program's user:
///   LOCKSTEP_SEED     unsigned integer: RuntimeOptions::seed
///   LOCKSTEP_TIMEOUT  seconds, > 0: RuntimeOptions::timeout
///   LOCKSTEP_CHECK    0 or 1: RuntimeOptions::check_collectives
///   LOCKSTEP_DEVICE   cpu, cuda or automatic: RuntimeOptions::device
///   LOCKSTEP_SHARE_DEVICE  0 or 1: RuntimeOptions::share_device
///   LOCKSTEP_TRANSPORT automatic, nccl or staged: RuntimeOptions::transport
///   LOCKSTEP_PROGRESS bar or plain: see ProgressOutput
///   LOCKSTEP_PROBE_DTYPE  0 or 1: see dtype_is_probed()
///   LOCKSTEP_BACKTRACE 0 or 1: with 1 an Error that quotes a LibTorch error has its C++ backtrace
///                     too (as_error)
/// collectives/ reads LOCKSTEP_REPORT_AFTER (mpi_session.cpp), LOCKSTEP_FLIGHT_RECORD
/// (flight_record.h), LOCKSTEP_MPI (mpi_files.h) and the launcher's LOCKSTEP_LIFE_SIGNS
/// (life_sign.h).
/// Returns the options with what is set applied. Throws Error that quotes a malformed value.
RuntimeOptions with_environment(RuntimeOptions options);

/// Whether rank 0 measures, when a Trainer is made on a CPU, how fast its compute dtype is, and
/// says so if it is slow. True unless LOCKSTEP_PROBE_DTYPE is 0. Throws Error that quotes a
/// malformed value.
bool dtype_is_probed();

}  // namespace lockstep::detail
