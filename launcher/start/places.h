#pragma once

#include <string>
#include <vector>

#include "start/run_options.h"

namespace lockstep::launcher {

/// Where ranks may run: a host, or the place of one rank on this host.
struct Place {
  std::string name;  // the host, as mpirun takes it; empty: a rank of this host
  int slots = 1;
};

/// The places of a job of so many ranks, in the order in which mpirun fills them: the hosts of
/// --host or --hostfile, else those of the batch system's job if there are several, else one place
/// for each rank. `allocated`: the hosts that the batch system names (allocated_places).
std::vector<Place> places_of(const RunOptions& options, int ranks,
                             const std::vector<Place>& allocated);

/// The hosts of the job of PBS, LSF or Slurm that this process belongs to; empty outside of one.
/// Slurm's are listed by `scontrol`.
std::vector<Place> allocated_places();

/// "a:4,b,c:2", as mpirun takes it. A host that is named twice has the slots of both.
std::vector<Place> places_in_list(const std::string& text);
/// The lines of a host file, "a slots=4", "b:2" or "c"; # begins a comment.
std::vector<Place> places_in_file(const std::string& text);
/// The reverse of places_in_list.
std::string list_of(const std::vector<Place>& places);
/// Slurm's "4(x2),2": 4, 4, 2.
std::vector<int> counts_in(const std::string& text);

}  // namespace lockstep::launcher
