#pragma once

#include <string>
#include <vector>

#include "start/run_options.h"

namespace lockstep::launcher {

/// A place for ranks: a host, or one rank's place on this host.
struct Place {
  std::string name;  // the host, in mpirun's form; empty: a rank of this host
  int slots = 1;
};

/// The places of a job of `ranks` ranks, in the order in which mpirun fills them: the hosts of
/// --host or --hostfile, else `allocated` (allocated_places()) if there are several, else one place
/// for each rank.
std::vector<Place> places_of(const RunOptions& options, int ranks,
                             const std::vector<Place>& allocated);

/// The hosts of the PBS, LSF or Slurm job of this process; empty outside of a job. For Slurm it
/// runs `scontrol`.
std::vector<Place> allocated_places();

/// Parses mpirun's "a:4,b,c:2". The slots of a host that is named twice are added.
std::vector<Place> places_in_list(const std::string& text);
/// Parses the lines of a host file: "a slots=4", "b:2" or "c"; # begins a comment.
std::vector<Place> places_in_file(const std::string& text);
/// The reverse of places_in_list.
std::string list_of(const std::vector<Place>& places);
/// Parses Slurm's "4(x2),2": 4, 4, 2.
std::vector<int> counts_in(const std::string& text);

}  // namespace lockstep::launcher
