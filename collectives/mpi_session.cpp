#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/mpi_session.h>

#include <lockstep/collectives/core/roll_call.h>
#include <lockstep/collectives/impl/launch_environment.h>
#include <lockstep/collectives/impl/life_sign.h>
#include <lockstep/collectives/mpi/find_mpi.h>
#include <lockstep/collectives/mpi/mpi_transport.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <numeric>
#include <optional>

namespace lockstep {
namespace {

using detail::MpiConstants;

std::atomic<bool> session_exists{false};
std::atomic<bool> session_failed{false};  // a session that is not a guest's has failed

/// Reports missing ranks while all ranks wait in MPI. Null under `lockstep run`, whose launcher
/// reports them.
std::unique_ptr<detail::RollCall> call_roll(const char* point) {
  if (std::getenv("LOCKSTEP_LIFE_SIGNS") != nullptr) {
    return nullptr;
  }
  const char* text = std::getenv("LOCKSTEP_REPORT_AFTER");
  const int seconds = text == nullptr ? 0 : std::atoi(text);
  return std::make_unique<detail::RollCall>(
      detail::RollCallPlace::of_environment(), point,
      std::chrono::seconds(seconds > 0 ? seconds : 30), [](const std::string& found) {
        std::cerr << "lockstep: " + found + "\n" << std::flush;
      });
}

/// Initialises and finalises MPI, unless the program has initialised it.
class MpiLife {
 public:
  MpiLife() {
    int initialized = 0;
    detail::check_mpi(mpi_.initialized(&initialized), "MPI_Initialized");
    if (initialized == 0) {
      const auto roll = call_roll("start");
      detail::check_mpi(mpi_.init_thread(MpiConstants::kThreadMultiple, &thread_level_),
                        "MPI_Init_thread");
      is_ours_ = true;
      detail::check_mpi(mpi_.set_errhandler(mpi_.world(), mpi_.errors_return()),
                        "MPI_Comm_set_errhandler");
    } else {
      detail::check_mpi(mpi_.query_thread(&thread_level_), "MPI_Query_thread");
    }
  }
  ~MpiLife() {
    if (is_ours_) {
      mpi_.finalize();
    }
  }
  MpiLife(const MpiLife&) = delete;
  MpiLife& operator=(const MpiLife&) = delete;

  /// Does not finalise MPI: that would wait for ranks that do not come.
  void abandon() { is_ours_ = false; }

  /// Throws on every rank if the thread level of MPI is too low on one.
  void check_thread_level(const detail::MpiComm& world) const {
    const bool enough = thread_level_ >= MpiConstants::kThreadSerialized;
    const std::string start =
        is_ours_ ? "; MPI offers no more: use an MPI library that is built with support for threads"
                 : "; start MPI with MPI_Init_thread(..., MPI_THREAD_SERIALIZED, ...) or "
                   "MPI_THREAD_MULTIPLE in place of MPI_Init, or let lockstep start MPI";
    LOCKSTEP_CHECK_CODE(
        world.all_agree(enough), ExitCode::environment, "rank ", world.rank(),
        ": MPI's thread level is ", detail::thread_level_name(thread_level_),
        enough ? " here, but too low on another rank" : "",
        "; lockstep needs MPI_THREAD_SERIALIZED: the hooks of gradients on a device call MPI from "
        "a thread of autograd",
        start);
  }

 private:
  const detail::MpiLibrary& mpi_ = detail::load_mpi();
  bool is_ours_ = false;
  int thread_level_ = MpiConstants::kThreadSingle;
};

/// The library of this process; null: none. A process that nobody launched needs none, so it may
/// have what lockstep cannot use.
const detail::MpiLibrary* usable_mpi() {
  try {
    return detail::loaded_mpi();
  } catch (const Error&) {
    if (!detail::is_started_by_hand()) {
      throw;
    }
    return nullptr;
  }
}

bool is_up(const detail::MpiLibrary* mpi) {
  if (mpi == nullptr) {
    return false;
  }
  int initialized = 0;
  int finalized = 0;
  detail::check_mpi(mpi->initialized(&initialized), "MPI_Initialized");
  detail::check_mpi(mpi->finalized(&finalized), "MPI_Finalized");
  LOCKSTEP_CHECK(finalized == 0,
                 "MpiSession: MPI was finalised in this process, most likely with an earlier "
                 "session or Runtime, and cannot start again; keep one for the whole program");
  return initialized != 0;
}

/// Throws on every rank if the launcher and MPI disagree about the world size on one.
void check_world_size(const detail::LaunchEnvironment& launch, const detail::MpiComm& world) {
  const int size = world.size();
  const bool agrees = launch.world_size == 0 || launch.world_size == size;
  LOCKSTEP_CHECK_CODE(world.all_agree(agrees), ExitCode::environment, "rank ", world.rank(),
                      ": the launcher started ", launch.world_size, " ranks (",
                      launch.size_variable, "), but MPI sees a world of ", size,
                      ". The library of this process is ", detail::mpi_facts().library, "; ",
                      detail::advice_on_mpi());
}

}  // namespace

struct MpiSession::Impl {
  /// Marks this process as having a session.
  struct OnlyOne {
    OnlyOne() {
      LOCKSTEP_CHECK(
          !session_exists.exchange(true),
          "MpiSession: this process already has one, perhaps of a Runtime; use that one, "
          "or destroy it first");
    }
    ~OnlyOne() { session_exists = false; }
  };

  /// Not for a guest: a program may construct several on its communicators.
  std::optional<OnlyOne> only_one;
  int exceptions = std::uncaught_exceptions();
  std::shared_ptr<std::atomic<bool>> failed = std::make_shared<std::atomic<bool>>(false);
  std::optional<MpiLife> mpi;
  Communicator world = Communicator::solo();
  detail::MpiHandle joined = 0;

  ~Impl() {
    if (only_one && mpi && failed->load()) {
      session_failed = true;
    }
  }

  /// Makes `world` of the ranks of `comm`; `launch` has the expected size.
  void join(detail::MpiHandle comm, const detail::LaunchEnvironment& launch,
            CommunicatorOptions options) {
    joined = comm;
    mpi.emplace();
    try {
      detail::MpiComm ranks = detail::MpiComm::duplicate(comm);
      check_world_size(launch, ranks);
      mpi->check_thread_level(ranks);
      world = Communicator(detail::make_mpi_transport(std::move(ranks), options, failed));
    } catch (const CommunicationError&) {
      mpi->abandon();
      failed->store(true);
      throw;
    }
  }
};

MpiSession::MpiSession(CommunicatorOptions options) : impl_(std::make_unique<Impl>()) {
  impl_->only_one.emplace();
  LOCKSTEP_CHECK_CODE(!session_failed.load(), ExitCode::peer_lost,
                      "MpiSession: a collective of an earlier session or Runtime of this process "
                      "has failed, and MPI cannot start again; end this process, and start all "
                      "ranks again from the last snapshot");
  detail::give(detail::LifeSign::starting);
  if (const detail::MpiLibrary* mpi = usable_mpi(); is_up(mpi)) {
    impl_->join(mpi->world(), {}, options);
    detail::give(detail::LifeSign::up);
    return;
  }
  const detail::LaunchEnvironment launch = detail::read_launch_environment();
  if (launch.by_launcher) {
    impl_->join(detail::load_mpi().world(), launch, options);
  }
  detail::give(detail::LifeSign::up);
}

MpiSession::MpiSession(MpiCommHandle comm, CommunicatorOptions options)
    : impl_(std::make_unique<Impl>()) {
  const detail::MpiLibrary* mpi = detail::loaded_mpi();
  LOCKSTEP_CHECK(mpi != nullptr,
                 "the program passed a communicator, but this process has no MPI library; link the "
                 "program to a shared one, of Open MPI or of MPICH or a relative");
  LOCKSTEP_CHECK(is_up(mpi),
                 "the program passed a communicator, but has not started MPI; call "
                 "MPI_Init_thread(..., MPI_THREAD_MULTIPLE, ...) first");
  impl_->join(detail::program_comm(comm), {}, options);
}

MpiSession::~MpiSession() {
  const bool fails = impl_->failed->load() || std::uncaught_exceptions() > impl_->exceptions;
  // A guest gives no signs: its beginning and end are not those of its program.
  const bool ends_program = impl_->only_one.has_value();
  if (ends_program) {
    detail::give(fails ? detail::LifeSign::failing : detail::LifeSign::leaving);
  }
  if (impl_->mpi && fails) {
    impl_->mpi->abandon();
  }
  impl_.reset();
  if (!fails && ends_program) {
    detail::give(detail::LifeSign::left);
  }
}

Communicator MpiSession::world() const {
  return impl_->world;
}

std::function<void()> MpiSession::failure_mark() const {
  return [failed = impl_->failed] { failed->store(true); };
}

std::vector<std::string> MpiSession::leave_with(const std::string& bytes) {
  if (!impl_->mpi || impl_->failed->load()) {
    return {};
  }
  const bool ends_program = impl_->only_one.has_value();
  if (ends_program) {
    detail::give(detail::LifeSign::leaving);
  }
  const auto roll = ends_program ? call_roll("end") : nullptr;
  const auto ranks = static_cast<size_t>(impl_->world.size());
  impl_->world = Communicator::solo();
  const detail::ReturnedErrors returned(impl_->joined);
  const auto check = [&](int code, const char* call) {
    impl_->failed->store(code != MpiConstants::kSuccess);
    detail::check_mpi(code, call);
  };
  const detail::MpiLibrary& mpi = detail::load_mpi();
  const int mine = static_cast<int>(bytes.size());
  std::vector<int> sizes(ranks);
  check(mpi.allgather(&mine, sizeof mine, sizes.data(), impl_->joined), "MPI_Allgather");
  std::vector<int> begins(ranks + 1);
  std::partial_sum(sizes.begin(), sizes.end(), begins.begin() + 1);
  std::string all(static_cast<size_t>(begins.back()), '\0');
  check(mpi.allgatherv(bytes.data(), mine, all.data(), sizes.data(), begins.data(), impl_->joined),
        "MPI_Allgatherv");
  std::vector<std::string> result;
  for (size_t rank = 0; rank < ranks; ++rank) {
    result.push_back(
        all.substr(static_cast<size_t>(begins[rank]), static_cast<size_t>(sizes[rank])));
  }
  return result;
}

std::string MpiSession::library_version() const {
  return impl_->mpi ? detail::load_mpi().version() : "";
}

}  // namespace lockstep
