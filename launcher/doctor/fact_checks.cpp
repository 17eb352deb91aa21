#include "doctor/fact_checks.h"

#include <map>

#include "doctor/fact_texts.h"
#include "doctor/machine_checks.h"

namespace lockstep::doctor {
namespace {

Finding check_build(const Ranks& ranks) {
  const RankFacts& first = ranks.front();
  const std::string what = text(
      first.compiler, ", LibTorch ", first.libtorch_loaded,
      first.libtorch_has_cuda ? " for CUDA " + cuda_text(first.cuda_runtime)
                              : std::string(" for CPUs"),
      first.has_kernels ? ", kernels" : ", no kernels", first.has_nccl ? ", NCCL" : ", no NCCL");
  for (const RankFacts& rank : ranks) {
    if (!rank.libtorch_loaded.empty() && rank.libtorch_loaded != rank.libtorch_built) {
      return failure(text(who(rank), " has loaded LibTorch ", rank.libtorch_loaded,
                          ", lockstep was built with ", rank.libtorch_built),
                     "remove the other LibTorch from LD_LIBRARY_PATH, or build lockstep with it");
    }
  }
  if (any_gpu(ranks) && !first.has_kernels) {
    return failure(what + "; there is a GPU",
                   "install a CUDA toolkit or requirements-cuda.txt, and build lockstep again with "
                   "-DLOCKSTEP_CUDA=ON");
  }
  return ok(what);
}

Finding check_instructions(const Ranks& ranks) {
  if (const RankFacts* other = different(ranks, &RankFacts::instructions)) {
    return warning(
        text("rank 0 runs ", ranks.front().instructions, ", ", who(*other), " runs ",
             other->instructions),
        "the ranks' bits stay equal, but a run that resumes on other machines may differ "
        "in low bits: set ATEN_CPU_CAPABILITY=avx2 on all ranks");
  }
  return ok(ranks.front().instructions);
}

Finding check_mpi(const Ranks& ranks) {
  if (ranks.front().thread_level.empty()) {
    return skipped("not in use: no launcher has started this process");
  }
  if (const RankFacts* other = different(ranks, &RankFacts::mpi)) {
    return failure(text("rank 0 has ", ranks.front().mpi, ", ", who(*other), " has ", other->mpi),
                   "install the same MPI library on all nodes");
  }
  const RankFacts* low = first_with(ranks, [](const RankFacts& rank) {
    return rank.thread_level != "MPI_THREAD_SERIALIZED" &&
           rank.thread_level != "MPI_THREAD_MULTIPLE";
  });
  if (low != nullptr) {
    return failure(text(low->mpi, ", ", low->thread_level, " on ", who(*low)),
                   "lockstep needs MPI_THREAD_SERIALIZED: a program that starts MPI itself calls "
                   "MPI_Init_thread with it, or the MPI library is built with support for threads");
  }
  return ok(text(ranks.front().mpi, ", ", ranks.front().thread_level));
}

Finding check_ranks(const Ranks& ranks) {
  std::map<std::string, int> hosts;
  for (const RankFacts& rank : ranks) {
    ++hosts[rank.host];
    if (rank.launched > 0 && rank.launched != rank.size) {
      return failure(text("the launcher started ", rank.launched, " ranks, MPI sees ", rank.size),
                     text("start the program with the mpirun of its MPI library, ", rank.mpi,
                          ", or name the launcher's library in LOCKSTEP_MPI"));
    }
  }
  const std::string what =
      text(count_of(ranks.size(), "rank"), " on ", count_of(hosts.size(), "node"));
  for (const RankFacts& rank : ranks) {
    const auto devices = static_cast<int>(rank.devices.size());
    if (devices > 1 && rank.local_size < devices) {
      return warning(
          text(what, ": ", rank.local_size, " on ", rank.host, ", which has ", devices, " GPUs"),
          text("start one rank for each GPU: lockstep doctor -n ", devices));
    }
    const int cores = rank.cores * (rank.cpus.size() == 1 ? rank.local_size : 1);
    if (rank.local_size > cores) {
      return warning(text(what, ": ", rank.local_size, " on the ", cores, " cores of ", rank.host),
                     "start at most one rank for each core");
    }
  }
  return ok(what + (ranks.size() == 1 ? "; lockstep doctor -n N checks N ranks together" : ""));
}

Finding check_driver(const Ranks& ranks) {
  for (const RankFacts& rank : ranks) {
    if (rank.cuda_driver < 0 && rank.gpus_present > 0) {
      return failure(
          text(who(rank), " has ", count_of(static_cast<size_t>(rank.gpus_present), "GPU"),
               " and no driver (libcuda.so.1)"),
          "install NVIDIA's driver; in a container, start it with --gpus all");
    }
    if (rank.libtorch_has_cuda && rank.cuda_driver >= 0 &&
        rank.cuda_driver / 1000 < rank.cuda_runtime / 1000) {
      return failure(
          text("the driver of ", who(rank), " supports CUDA ", cuda_text(rank.cuda_driver),
               " at most, LibTorch is built for ", cuda_text(rank.cuda_runtime)),
          "install a newer driver, or a torch wheel for that CUDA and build again");
    }
    if (!rank.no_device.empty()) {
      return failure(
          text(who(rank), " has ", count_of(static_cast<size_t>(rank.gpus_present), "GPU"),
               " and can use none: ", rank.no_device),
          rank.no_device_fix);
    }
  }
  const RankFacts& first = ranks.front();
  return first.cuda_driver < 0 ? skipped("no GPU in this machine, no driver")
                               : ok(text("supports CUDA ", cuda_text(first.cuda_driver)));
}

Finding check_nccl(const Ranks& ranks) {
  if (first_with(ranks, [](const RankFacts& rank) { return rank.has_nccl; }) == nullptr) {
    return skipped("not in this build");  // LibTorch loads its own
  }
  for (const RankFacts& rank : ranks) {
    if (rank.nccl_files.size() > 1) {
      return failure(text(who(rank), " has loaded two copies of NCCL, ", rank.nccl_files[0],
                          " and ", rank.nccl_files[1]),
                     "remove one from LD_LIBRARY_PATH or LD_PRELOAD");
    }
    if (rank.nccl_loaded > 0 && rank.nccl_loaded < rank.nccl_built) {
      return failure(
          text(who(rank), " has loaded NCCL ", nccl_text(rank.nccl_loaded),
               ", lockstep was built with ", nccl_text(rank.nccl_built)),
          "let LibTorch load the NCCL of its wheel, or build lockstep with the older one");
    }
    if (rank.nccl_loaded != ranks.front().nccl_loaded) {
      return failure(text("rank 0 has NCCL ", nccl_text(ranks.front().nccl_loaded), ", ", who(rank),
                          " has ", nccl_text(rank.nccl_loaded)),
                     "install the same torch wheel on all nodes");
    }
  }
  const RankFacts& first = ranks.front();
  if (!first.without_nccl.empty()) {
    return warning(
        text("not in use, device tensors go through the host: ", first.without_nccl),
        "NCCL on every rank and a GPU for each; LOCKSTEP_TRANSPORT=staged ends this warning");
  }
  if (first.nccl_loaded == 0) {
    return skipped("not loaded");
  }
  return ok(text(nccl_text(first.nccl_loaded), " loaded, built with ", nccl_text(first.nccl_built),
                 first.transport == "nccl" || first.device == "cpu" || first.size == 1
                     ? ""
                     : ", not in use: transport " + first.transport));
}

}  // namespace

const std::vector<FactCheck>& fact_checks() {
  static const std::vector<FactCheck> checks{
      {"build", check_build},
      {"instruction set", check_instructions},
      {"MPI", check_mpi},
      {"ranks", check_ranks},
      {"driver", check_driver},
      {"NCCL", check_nccl},
      {"devices", check_device},
      {"links", check_links},
      {"GPUDirect", check_gpudirect},
      {"cores", check_cores},
      {"/dev/shm", check_shared_memory},
      {"leftovers", check_leftovers},
      {"limits", check_limits},
      {"clocks", check_clocks},
      {"snapshot folder", check_snapshots},
  };
  return checks;
}

}  // namespace lockstep::doctor
