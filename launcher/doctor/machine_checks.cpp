#include "doctor/machine_checks.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

#include "doctor/fact_texts.h"

namespace lockstep::doctor {

Finding check_device(const Ranks& ranks) {
  std::map<std::string, int> owners;
  for (const RankFacts& rank : ranks) {
    for (const DeviceFacts& device : rank.devices) {
      const bool in_use = rank.device.empty() || rank.device == text("cuda:", device.index);
      if (in_use && !device.no_code.empty()) {
        return failure(text(who(rank), " sees device ", device.index, ", and ", device.no_code),
                       "LOCKSTEP_DEVICE=cpu chooses CPUs");
      }
    }
    if (rank.device.rfind("cuda", 0) != 0) {
      continue;
    }
    const auto [owner, is_new] = owners.emplace(rank.device_uuid, rank.rank);
    if (!is_new) {
      return warning(text("ranks ", owner->second, " and ", rank.rank, " share ", rank.device_uuid),
                     "start one rank for each GPU; look at CUDA_VISIBLE_DEVICES of each rank");
    }
  }
  const RankFacts& first = ranks.front();
  if (first.device.empty()) {
    return skipped("no rank has one: see the row of start");
  }
  if (owners.empty()) {
    return any_gpu(ranks)
               ? warning("there is a GPU, the ranks are on CPUs: " + first.device_reason,
                         "see the rows of driver and build, CUDA_VISIBLE_DEVICES, LOCKSTEP_DEVICE")
               : skipped("CPUs: there is no GPU in this machine");
  }
  return ok(text(owners.size(), " in use, rank 0 has ", first.device, " ", first.device_uuid));
}

Finding check_links(const Ranks& ranks) {
  const auto& devices = ranks.front().devices;
  if (devices.empty()) {
    return skipped("no GPU");
  }
  std::string what;
  for (const DeviceFacts& device : devices) {
    what += text(what.empty() ? "" : "; ", device.index, ": ", device.bus, ", ",
                 device.nvlinks < 0 ? std::string("NVLinks unknown")
                                    : count_of(static_cast<size_t>(device.nvlinks), "NVLink"),
                 ", NUMA node ", device.numa);
  }
  for (const DeviceFacts& device : devices) {
    if (device.nvlinks >= 0 && device.nvlinks != devices.front().nvlinks) {
      return warning(what,
                     "the devices differ in active NVLinks: nvidia-smi nvlink -s shows which "
                     "link is down");
    }
  }
  return ok(what);
}

Finding check_gpudirect(const Ranks& ranks) {
  std::set<std::string> hosts;
  for (const RankFacts& rank : ranks) {
    hosts.insert(rank.host);
  }
  const RankFacts& first = ranks.front();
  if (first.device.rfind("cuda", 0) != 0 || first.fabric_ports == 0) {
    return skipped(text(first.fabric_ports, " active InfiniBand ports",
                        first.devices.empty() ? ", no GPU" : ""));
  }
  const RankFacts* without =
      first_with(ranks, [](const RankFacts& rank) { return !rank.peer_memory; });
  if (without != nullptr && hosts.size() > 1) {
    return warning(
        text(who(*without), " has InfiniBand, but not the module nvidia_peermem"),
        "modprobe nvidia_peermem, unless NCCL_DEBUG=INFO says that GPUDirect uses DMA-BUF");
  }
  return ok(text(first.fabric_ports, " active InfiniBand ports, nvidia_peermem ",
                 first.peer_memory ? "loaded" : "not loaded"));
}

Finding check_cores(const Ranks& ranks) {
  for (const RankFacts& rank : ranks) {
    for (const RankFacts& other : ranks) {
      if (other.rank > rank.rank && other.host == rank.host && rank.cpus.size() == 1 &&
          other.cpus == rank.cpus) {
        return warning(text("ranks ", rank.rank, " and ", other.rank,
                            " are bound to the same core ", rank.cpus.front()),
                       "start with lockstep run, or mpirun --bind-to none");
      }
    }
    if (rank.device.rfind("cuda", 0) == 0 && rank.cpus.size() == 1) {
      return warning(text(who(rank), " is bound to one core, and its threads share it"),
                     "start with lockstep run, or mpirun --bind-to none");
    }
    const auto index =
        static_cast<size_t>(std::atoi(rank.device.c_str() + 5 * (rank.device.size() > 5)));
    if (rank.device.rfind("cuda", 0) == 0 && index < rank.devices.size()) {
      const int nearest = rank.devices[index].numa;
      if (nearest >= 0 && !rank.numa.empty() &&
          std::find(rank.numa.begin(), rank.numa.end(), nearest) == rank.numa.end()) {
        return warning(
            text(who(rank), " runs on NUMA node ", rank.numa.front(), ", its GPU is at node ",
                 nearest),
            text("bind the rank to node ", nearest, ": numactl --cpunodebind=", nearest));
      }
    }
  }
  const RankFacts& first = ranks.front();
  return ok(text("a rank may use ", count_of(first.cpus.size(), "processor"), " on ",
                 count_of(std::max<size_t>(1, first.numa.size()), "NUMA node"), ", computes on ",
                 count_of(static_cast<size_t>(first.threads), "thread")));
}

Finding check_shared_memory(const Ranks& ranks) {
  for (const RankFacts& rank : ranks) {
    const int64_t needed = 64 * kMiB + 16 * kMiB * rank.local_size;
    const std::string what =
        text(size_text(rank.shm_free), " of ", size_text(rank.shm_bytes), " free on ", rank.host);
    if (rank.shm_free < needed) {
      return failure(
          text(what, ", ", rank.local_size, " ranks need ", size_text(needed)),
          "start the container with --shm-size=8g or --ipc=host, or enlarge it: mount -o "
          "remount,size=8g /dev/shm");
    }
  }
  return ok(
      text(size_text(ranks.front().shm_free), " of ", size_text(ranks.front().shm_bytes), " free"));
}

Finding check_leftovers(const Ranks& ranks) {
  std::set<std::string> seen;
  std::vector<std::string> paths;
  int64_t bytes = 0;
  for (const RankFacts& rank : ranks) {
    for (const Leftover& leftover : rank.leftovers) {
      if (seen.insert(rank.host + leftover.path).second) {
        paths.push_back(leftover.path);
        bytes += leftover.bytes;
      }
    }
  }
  if (paths.empty()) {
    return ok("none of dead processes");
  }
  return warning(
      text(paths.size(), " of dead processes, ", size_text(bytes), ": ", paths.front()),
      text("rm -r ", paths.front(), paths.size() > 1 ? " and the others (--json lists them)" : ""));
}

Finding check_limits(const Ranks& ranks) {
  for (const RankFacts& rank : ranks) {
    if (rank.fabric_ports > 0 && rank.memlock >= 0 && rank.memlock < 1024 * kMiB) {
      return failure(
          text("memlock is ", size_text(rank.memlock), " on ", who(rank), ", which has InfiniBand"),
          "ulimit -l unlimited: '* - memlock unlimited' in /etc/security/limits.conf, "
          "LimitMEMLOCK=infinity for slurmd; a container needs --ulimit memlock=-1");
    }
    if (rank.open_files >= 0 && rank.open_files < 1024) {
      return warning(text("nofile is ", rank.open_files, " on ", who(rank)), "ulimit -n 65536");
    }
    if (rank.processes >= 0 && rank.processes < 1024) {
      return warning(
          text("nproc is ", rank.processes, " on ", who(rank), "; threads count as processes"),
          "ulimit -u 65536");
    }
  }
  const RankFacts& first = ranks.front();
  const auto number = [](int64_t value) {
    return value < 0 ? std::string("unlimited") : std::to_string(value);
  };
  return ok(text("memlock ", size_text(first.memlock), ", nofile ", number(first.open_files),
                 ", nproc ", number(first.processes)));
}

Finding check_clocks(const Ranks& ranks) {
  double most = 0.0;
  const RankFacts* furthest = &ranks.front();
  for (const RankFacts& rank : ranks) {
    if (std::abs(rank.clock) > most) {
      most = std::abs(rank.clock);
      furthest = &rank;
    }
  }
  if (ranks.size() == 1) {
    return skipped("one rank");
  }
  if (most > 1.0) {
    return warning(
        text("the clock of ", who(*furthest), " is ", furthest->clock, " s from that of rank 0"),
        "set the clocks by NTP (chronyd): logs of ranks cannot be put in order");
  }
  return ok(text("at most ", std::round(most * 1e6) * 1e-3, " ms apart"));
}

Finding check_snapshots(const Ranks& ranks) {
  if (ranks.front().snapshots.path.empty()) {
    return skipped("--snapshots DIR measures the folder of your snapshots");
  }
  double slowest = ranks.front().snapshots.megabytes_per_second;
  double all = 0.0;
  double sync = 0.0;
  for (const RankFacts& rank : ranks) {
    const FolderFacts& folder = rank.snapshots;
    if (!folder.error.empty()) {
      return failure(text(who(rank), " cannot write to ", folder.path, ": ", folder.error),
                     "name a folder that all ranks may write to and that has room");
    }
    if (!folder.sees_rank_0) {
      return failure(text(who(rank), " does not see what rank 0 wrote to ", folder.path),
                     "snapshots need one folder for all nodes: name one of a shared file system");
    }
    slowest = std::min(slowest, folder.megabytes_per_second);
    all += folder.megabytes_per_second;
    sync = std::max(sync, folder.sync_seconds);
  }
  const std::string what =
      text(std::round(all), " MB/s together, ", std::round(slowest),
           " MB/s the slowest rank, fsync of 4 KB ", std::round(sync * 1e4) * 0.1, " ms");
  if (slowest < 10.0 || sync > 1.0) {
    return warning(what,
                   "saving will be slow: choose a local or parallel file system, or save more "
                   "rarely");
  }
  return ok(what);
}

}  // namespace lockstep::doctor
