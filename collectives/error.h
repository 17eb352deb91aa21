#pragma once

/// How lockstep fails: Error and CommunicationError, their ExitCode, and LOCKSTEP_CHECK. The
/// libraries include the one of these headers that they use.
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
