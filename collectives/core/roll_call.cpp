#include <fcntl.h>
#include <lockstep/collectives/core/roll_call.h>
#include <lockstep/collectives/impl/blocked_signals.h>
#include <lockstep/collectives/impl/descriptor.h>
#include <lockstep/collectives/impl/process_mark.h>
#include <lockstep/collectives/impl/rank_names.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string_view>
#include <system_error>
#include <vector>

namespace lockstep::detail {
namespace {

std::string text_in(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? "" : text;
}

int number_in(const char* name, int otherwise) {
  const std::string text = text_in(name);
  return text.empty() ? otherwise : std::atoi(text.c_str());
}

/// A job's name in characters that file names allow.
std::string file_name_of(std::string job) {
  std::replace_if(
      job.begin(), job.end(),
      [](char c) { return !std::isalnum(static_cast<unsigned char>(c)) && c != '.'; }, '_');
  return job;
}

constexpr std::string_view file_beginning = "lockstep_";

/// Whether the process that a file name begins with may live.
bool may_live(const std::string& mark) {
  const auto process = parse_process_mark(mark);
  return !process || life_of(*process) != Life::dead;
}

std::string have(const std::vector<int>& ranks) {
  return ranks.size() == 1 ? " has" : " have";
}

}  // namespace

RollCallPlace RollCallPlace::of_environment() {
  RollCallPlace place;
  place.folder = "/dev/shm";
  place.job = file_name_of(text_in("PMIX_NAMESPACE"));
  if (!text_in("OMPI_COMM_WORLD_SIZE").empty()) {
    place.rank = number_in("OMPI_COMM_WORLD_RANK", 0);
    place.size = number_in("OMPI_COMM_WORLD_SIZE", 1);
    place.local_rank = number_in("OMPI_COMM_WORLD_LOCAL_RANK", 0);
    place.local_size = number_in("OMPI_COMM_WORLD_LOCAL_SIZE", 0);
  } else if (!place.job.empty()) {
    place.rank = number_in("SLURM_PROCID", 0);
    place.size = number_in("SLURM_STEP_NUM_TASKS", 1);
    place.local_rank = number_in("SLURM_LOCALID", 0);
    // For several nodes Slurm gives only a compressed list, which is not read here.
    place.local_size = number_in("SLURM_STEP_NUM_NODES", 1) == 1 ? place.size : 0;
  } else {
    place.rank = number_in("PMI_RANK", 0);
    place.size = number_in("PMI_SIZE", 1);
  }
  return place;
}

RollCall::RollCall(RollCallPlace place, std::string point, std::chrono::milliseconds first,
                   std::function<void(const std::string&)> say)
    : place_(std::move(place)), point_(std::move(point)), say_(std::move(say)) {
  if (place_.size < 2) {
    return;
  }
  if (!place_.job.empty()) {
    file_ = place_.folder + "/" + std::string(file_beginning) + own_mark() + "-" + point_ + "-" +
            place_.job + "-" + std::to_string(place_.local_rank) + "-" +
            std::to_string(place_.rank);
    const int flags = O_CREAT | O_EXCL | O_NOFOLLOW | O_WRONLY | O_CLOEXEC;
    const Descriptor made(open(file_.c_str(), flags, 0600));
  }
  const BlockedSignals blocked;
  try {
    thread_ = std::thread([this, first] { watch(first); });
  } catch (const std::system_error&) {  // without a thread nothing is reported, and the run goes on
    remove_file();
  }
}

void RollCall::remove_file() noexcept {
  if (!file_.empty()) {
    unlink(file_.c_str());
    file_.clear();
  }
}

RollCall::~RollCall() {
  if (!thread_.joinable()) {
    return;
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  thread_.join();
  remove_file();
}

std::string RollCall::report() const {
  const std::string unknown =
      "which ranks are missing is not known here: start the program with `lockstep run`, which "
      "names them, or look on each node for processes that have not started";
  if (place_.job.empty() || place_.local_size == 0) {
    return place_.rank == 0 ? unknown : "";
  }
  std::map<int, int> arrived;  // ranks by local rank
  const std::string middle = "-" + point_ + "-" + place_.job + "-";
  std::error_code ignored;
  std::filesystem::directory_iterator entry(place_.folder, ignored);
  for (; !ignored && entry != std::filesystem::directory_iterator(); entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    const size_t at = name.find(middle);
    int local_rank = 0;
    int rank = 0;
    if (at != std::string::npos && name.rfind(file_beginning, 0) == 0 &&
        std::sscanf(name.c_str() + at + middle.size(), "%d-%d", &local_rank, &rank) == 2 &&
        may_live(name.substr(file_beginning.size(), at - file_beginning.size()))) {
      arrived[local_rank] = rank;
    }
  }
  if (arrived.empty()) {
    return place_.rank == 0 ? unknown : "";
  }
  if (arrived.begin()->first != place_.local_rank) {
    return "";
  }
  std::vector<int> here;
  std::vector<int> missing;
  for (int local_rank = 0; local_rank < place_.local_size; ++local_rank) {
    const auto found = arrived.find(local_rank);
    if (found != arrived.end()) {
      here.push_back(found->second);
    } else {
      missing.push_back(local_rank);
    }
  }
  if (missing.empty()) {
    return place_.local_size == place_.size
               ? ""  // they all have arrived just now
               : "all ranks of this node have arrived (" + rank_names(here) +
                     "): a rank of another node has not";
  }
  // On one of several nodes only the local rank of a missing rank is known.
  const bool is_alone = place_.local_size == place_.size;
  return (is_alone ? "" : "on this node, local ") + rank_names(missing) + have(missing) +
         " not arrived (" + rank_names(here) + have(here) + ")";
}

void RollCall::watch(std::chrono::milliseconds first) {
  auto wait = first;
  auto waited = std::chrono::milliseconds(0);
  std::unique_lock<std::mutex> lock(mutex_);
  while (!changed_.wait_for(lock, wait, [this] { return ended_; })) {
    waited += wait;
    wait = waited;
    try {
      if (const std::string text = report(); !text.empty()) {
        const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(waited).count();
        say_("rank " + std::to_string(place_.rank) + " has waited " + std::to_string(seconds) +
             " s for the " + point_ + " of all ranks: " + text);
      }
    } catch (const std::exception&) {
      continue;  // no memory for a message: the run goes on
    }
  }
}

}  // namespace lockstep::detail
