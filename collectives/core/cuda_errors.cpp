#include <lockstep/collectives/impl/cuda_errors.h>

#include <algorithm>
#include <iterator>

namespace lockstep::detail {
namespace {

constexpr ExitCode lost = ExitCode::peer_lost;
constexpr ExitCode broken = ExitCode::environment;
constexpr const char* no_kernel =
    "lockstep must be built for this device's architecture (LOCKSTEP_CUDA_ARCHITECTURES), and the "
    "driver be no older than the toolkit";
constexpr const char* old_driver = "install a newer driver, or a torch wheel for an older CUDA";

// All that is not usage. NotReady (600) is no failure, and never reported as one.
constexpr CudaError errors[] = {
    {0, "", ExitCode::usage, ""},  // for all that are not in the table
    {2, "cudaErrorMemoryAllocation", ExitCode::out_of_memory, ""},
    {3, "cudaErrorInitializationError", broken, ""},
    {34, "cudaErrorStubLibrary", broken,
     "this libcuda.so.1 is a toolkit's stub, no driver: take its folder out of LD_LIBRARY_PATH"},
    {35, "cudaErrorInsufficientDriver", broken, old_driver},
    {36, "cudaErrorCallRequiresNewerDriver", broken, old_driver},
    {46, "cudaErrorDevicesUnavailable", broken,
     "the GPU is in exclusive-process mode and taken, or prohibited: nvidia-smi names the mode and "
     "the process"},
    {49, "cudaErrorIncompatibleDriverContext", broken, ""},
    {98, "cudaErrorInvalidDeviceFunction", broken, no_kernel},
    {100, "cudaErrorNoDevice", broken,
     "look for the GPU in nvidia-smi -L and dmesg; a container needs --gpus all, a job has to ask "
     "for GPUs"},
    {101, "cudaErrorInvalidDevice", broken, "look at CUDA_VISIBLE_DEVICES and nvidia-smi -L"},
    {102, "cudaErrorDeviceNotLicensed", broken, "give the virtual GPU its licence"},
    {103, "cudaErrorSoftwareValidityNotEstablished", broken, ""},
    {127, "cudaErrorStartupFailure", broken, ""},
    {200, "cudaErrorInvalidKernelImage", broken, no_kernel},
    {209, "cudaErrorNoKernelImageForDevice", broken, no_kernel},
    {214, "cudaErrorECCUncorrectable", lost, ""},
    {216, "cudaErrorDeviceAlreadyInUse", broken, "nvidia-smi names the process that has the GPU"},
    {217, "cudaErrorPeerAccessUnsupported", broken, ""},
    {218, "cudaErrorInvalidPtx", broken, no_kernel},
    {220, "cudaErrorNvlinkUncorrectable", lost, ""},
    {221, "cudaErrorJitCompilerNotFound", broken, no_kernel},
    {222, "cudaErrorUnsupportedPtxVersion", broken, no_kernel},
    {223, "cudaErrorJitCompilationDisabled", broken, no_kernel},
    {224, "cudaErrorUnsupportedExecAffinity", broken, ""},
    {225, "cudaErrorUnsupportedDevSideSync", broken, ""},
    {226, "cudaErrorContained", lost, ""},
    {301, "cudaErrorFileNotFound", broken, ""},
    {302, "cudaErrorSharedObjectSymbolNotFound", broken, ""},
    {303, "cudaErrorSharedObjectInitFailed", broken, ""},
    {304, "cudaErrorOperatingSystem", broken, "look at ulimit -l and at dmesg"},
    {500, "cudaErrorSymbolNotFound", broken, old_driver},
    {700, "cudaErrorIllegalAddress", lost, ""},
    {702, "cudaErrorLaunchTimeout", lost, ""},
    {714, "cudaErrorHardwareStackError", lost, ""},
    {715, "cudaErrorIllegalInstruction", lost, ""},
    {716, "cudaErrorMisalignedAddress", lost, ""},
    {717, "cudaErrorInvalidAddressSpace", lost, ""},
    {718, "cudaErrorInvalidPc", lost, ""},
    {719, "cudaErrorLaunchFailure", lost, ""},
    {721, "cudaErrorTensorMemoryLeak", lost, ""},
    {800, "cudaErrorNotPermitted", broken, ""},
    {801, "cudaErrorNotSupported", broken, ""},
    {802, "cudaErrorSystemNotReady", broken,
     "start nvidia-fabricmanager, whose version must be the driver's (systemctl status "
     "nvidia-fabricmanager)"},
    {803, "cudaErrorSystemDriverMismatch", broken,
     "the driver was updated while its kernel module was loaded: reboot; in a container, its "
     "libcuda.so.1 is not that of the host's driver"},
    {804, "cudaErrorCompatNotSupportedOnDevice", broken,
     "take the folder of cuda-compat out of LD_LIBRARY_PATH: this GPU needs a newer driver itself"},
    {805, "cudaErrorMpsConnectionFailed", broken,
     "start nvidia-cuda-mps-control -d, or unset CUDA_MPS_PIPE_DIRECTORY"},
    {806, "cudaErrorMpsRpcFailure", lost, ""},
    {807, "cudaErrorMpsServerNotReady", lost, ""},
    {808, "cudaErrorMpsMaxClientsReached", broken, "start fewer ranks on this GPU"},
    {809, "cudaErrorMpsMaxConnectionsReached", broken, "start fewer ranks on this GPU"},
    {810, "cudaErrorMpsClientTerminated", lost, ""},
    {811, "cudaErrorCdpNotSupported", broken, ""},
    {812, "cudaErrorCdpVersionMismatch", broken, ""},
    {909, "cudaErrorTimeout", lost, ""},
    {911, "cudaErrorExternalDevice", lost, ""},
    {999, "cudaErrorUnknown", lost,
     "load nvidia_uvm (modprobe nvidia_uvm, or nvidia-modprobe -u -c=0); after an Xid error in "
     "dmesg, reset the GPU or reboot"},
};

template <typename Same>
const CudaError& first_with(const Same& same) {
  const auto* found = std::find_if(std::begin(errors), std::end(errors), same);
  return found == std::end(errors) ? errors[0] : *found;
}

}  // namespace

const CudaError& cuda_error(int number) {
  return first_with([number](const CudaError& error) { return error.number == number; });
}

const CudaError& cuda_error(std::string_view name) {
  return first_with([name](const CudaError& error) { return error.name == name; });
}

}  // namespace lockstep::detail
