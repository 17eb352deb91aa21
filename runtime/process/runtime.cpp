#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <lockstep/collectives/check.h>
#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/impl/agreement.h>
#include <lockstep/collectives/impl/as_error.h>
#include <lockstep/collectives/impl/closure_calls.h>
#include <lockstep/collectives/impl/device_watch.h>
#include <lockstep/collectives/impl/device_world.h>
#include <lockstep/collectives/impl/life_sign.h>
#include <lockstep/collectives/impl/outcome.h>
#include <lockstep/collectives/mpi_session.h>
#include <lockstep/runtime/data/impl/mixed_seed.h>
#include <lockstep/runtime/process/impl/digest_difference.h>
#include <lockstep/runtime/process/impl/environment.h>
#include <lockstep/runtime/process/impl/failed_saves.h>
#include <lockstep/runtime/process/impl/host_threads.h>
#include <lockstep/runtime/process/impl/stop_signals.h>
#include <lockstep/runtime/process/own/construction.h>
#include <lockstep/runtime/process/own/device_arithmetic.h>
#include <lockstep/runtime/process/own/device_choice.h>
#include <lockstep/runtime/process/own/host_state.h>
#include <lockstep/runtime/runtime.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <optional>
#include <sstream>
#include <string_view>

namespace lockstep {
namespace {

CommunicatorOptions communicator_options(const RuntimeOptions& options) {
  CommunicatorOptions result;
  result.timeout = options.timeout();
  result.check = options.check_collectives() ? CollectiveCheck::on : CollectiveCheck::off;
  return result;
}

}  // namespace

/// Where the world comes from: MPI (or no launcher), a communicator of the program, or this process
/// alone.
struct Runtime::Session {
  /// Only for a guest; destroyed last.
  std::optional<detail::HostState> found;
  RuntimeOptions options;
  std::optional<MpiSession> mpi;
  Communicator world = Communicator::solo();
  std::string device_reason;
  std::string without_nccl;  // why device tensors go over another transport; empty: they need not

  std::function<void()> failure_mark() const {
    return mpi ? mpi->failure_mark() : [] {};
  }

  static std::unique_ptr<Session> launched(RuntimeOptions asked) {
    auto session = std::make_unique<Session>();
    session->options = detail::with_environment(std::move(asked));
    session->mpi.emplace(communicator_options(session->options));
    session->world = session->mpi->world();
    return session;
  }

  static std::unique_ptr<Session> guest(const MpiCommHandle& comm, RuntimeOptions asked) {
    auto session = std::make_unique<Session>();
    session->found.emplace();
    session->options = detail::with_environment(std::move(asked));
    session->mpi.emplace(comm, communicator_options(session->options));
    session->world = session->mpi->world();
    return session;
  }

  static std::unique_ptr<Session> solo(RuntimeOptions asked) {
    auto session = std::make_unique<Session>();
    session->options = std::move(asked);
    return session;
  }
};

Runtime::Runtime(std::string program, std::unique_ptr<Session> session)
    : options_(session->options),
      program_(std::move(program)),
      session_(std::move(session)),
      world_(detail::with_closure_calls(session_->world)),
      control_(world_.split(0, world_.rank())),
      device_(c10::kCPU) {
  const detail::BoundDevice bound = detail::bind_device(options_.device(), options_.share_device(),
                                                        control_, detail::cuda_driver());
  device_ = bound.device;
  session_->device_reason = bound.reason;
  const auto say = [this](const std::string& what) {
    if (session_->mpi && is_main() && !what.empty()) {
      std::cerr << "lockstep: " << what << std::endl;
    }
  };
  say(bound.notable ? bound.reason : "");
  say(detail::set_arithmetic(options_, device_));
  if (device_.is_cuda()) {
    detail::watch_device(device_);
    DeviceWorld made = make_device_world(world_, device_, bound.identity, options_.transport(),
                                         communicator_options(options_), session_->failure_mark());
    world_ = std::move(made.communicator);
    session_->without_nccl = std::move(made.without_nccl);
    say(session_->without_nccl.empty()
            ? ""
            : c10::str("device tensors go through the host, slower than over NCCL, because ",
                       session_->without_nccl));
  }
  const bool is_guest = session_->found.has_value();
  if (!is_guest) {
    detail::keep_freed_memory();
  }
  threads_ = options_.threads() > 0 ? options_.threads()
             : is_guest             ? at::get_num_threads()
                                    : detail::threads_of_this_rank(control_);
  threads_are_named_ = options_.threads() > 0 || is_guest || detail::threads_of_environment() > 0;
  if (is_guest) {
    at::set_num_threads(threads_);
  } else {
    detail::start_compute_threads(threads_);
  }
  at::manual_seed(seed());
}

Runtime::Runtime(int argc, char** argv, RuntimeOptions options)
    : Runtime(argc > 0 && argv != nullptr ? argv[0] : "", Session::launched(std::move(options))) {}

Runtime::Runtime(MpiCommHandle comm, RuntimeOptions options)
    : Runtime("", Session::guest(comm, std::move(options))) {}

Runtime Runtime::solo(RuntimeOptions options) {
  return {"", Session::solo(std::move(options))};
}

Runtime::~Runtime() = default;

void Runtime::construct_in_turns(const std::function<torch::nn::Module&()>& make) const {
  detail::Construction(control_, device_).run(make);
}

void Runtime::seed_ranks(int64_t update) const {
  const uint64_t run =
      update == 0 ? seed() : detail::mixed_seed(seed(), ~static_cast<uint64_t>(update));
  at::manual_seed(detail::mixed_seed(run, static_cast<uint64_t>(rank())));
}

void Runtime::hold_at_end(const std::string& name, uint64_t digest) const {
  ends_->names.push_back(name);
  ends_->digests.push_back(digest);
}

std::string Runtime::summary() const {
  if (!is_main()) {
    return {};
  }
  std::ostringstream out;
  const std::string library = session_->mpi ? session_->mpi->library_version() : "";
  out << "ranks      " << size() << " (" << local_size() << " on this node), transport "
      << world_.transport_name() << (library.empty() ? "" : ", " + library) << "\n"
      << "device     " << device_ << ", " << threads_ << (threads_ == 1 ? " thread" : " threads")
      << " a rank: " << session_->device_reason << "\n"
      << "seed       " << seed() << "\n";
  if (!session_->without_nccl.empty()) {
    out << "NCCL       not in use because " << session_->without_nccl << "\n";
  }
  return out.str();
}

namespace {

/// In one piece, so that the lines of several ranks do not mix, and without allocating memory.
/// The name once, where the text begins with it.
void print_line(const std::string& who, const char* what, const char* advice = "") {
  const bool is_named = std::string_view(what).substr(0, who.size() + 2) == who + ": ";
  std::fprintf(stderr, "%s%s%s%s\n", is_named ? "" : who.c_str(), is_named ? "" : ": ", what,
               advice);
}

/// LibTorch's ways to say that a 16-bit weight met an fp32 input.
bool mixes_dtypes(std::string_view text) {
  const auto says = [text](std::string_view part) { return text.find(part) != text.npos; };
  return (says("same dtype") || says("should be the same") || says("expected scalar type") ||
          says("mixed dtype")) &&
         (says("Half") || says("BFloat16") || says("mixed dtype"));
}

constexpr const char* kMixedAdvice =
    "\nA Trainer at O2 or O3 keeps the model's weights in 16 bits: use the model outside step() "
    "within `const auto region = trainer.autocast();`";

/// Has no deadline: ranks may arrive hours apart, for example if one of them evaluates.
void require_equal_ends(const std::vector<std::string>& names, const std::vector<uint64_t>& digests,
                        MpiSession& session) {
  const auto all = session.leave_with(std::string(reinterpret_cast<const char*>(digests.data()),
                                                  digests.size() * sizeof(uint64_t)));
  const bool equal = std::all_of(all.begin(), all.end(),
                                 [&](const std::string& each) { return each == all.front(); });
  if (!equal) {
    const detail::DigestDifference difference = detail::difference_of(names, all);
    throw Error("the program ended with replicas that differ: " + difference.text +
                    ". Do not use these weights: go on from the last snapshot",
                ExitCode::diverged, difference.ranks);
  }
}

/// Where no memory is left for the text, the launcher gets the code alone.
void tell_launcher(int code, bool is_shared, const char* text,
                   const std::vector<int>& ranks) noexcept {
  try {
    if (detail::has_listener()) {
      detail::give(detail::LifeSign::ends,
                   detail::to_text(detail::EndSign{code, is_shared, text, ranks}));
    }
  } catch (const std::exception&) {
    if (*text != '\0') {
      tell_launcher(code, is_shared, "", {});
    }
  }
}

/// Peers that wait for this rank hear why it ends. All ranks stop together on request, so that no
/// peer waits for one then.
void tell_peers(const std::exception_ptr& failure) noexcept {
  try {
    if (detail::as_error(failure).code() != ExitCode::preempted) {
      detail::leave_because(failure);
    }
  } catch (const std::exception&) {
    // No memory is left for it: peers learn that this process has ended.
  }
}

/// Whether the error is only that of another rank.
bool is_of_a_peer(const Error& error) {
  const auto* agreed = dynamic_cast<const detail::SharedError*>(&error);
  const bool left = dynamic_cast<const CommunicationError*>(&error) != nullptr &&
                    error.code() != ExitCode::peer_lost;
  return left || (agreed != nullptr && !agreed->is_own()) ||
         dynamic_cast<const PeerStepFailed*>(&error) != nullptr;
}

/// Prints why the program ends and returns its exit code, even if no memory is left for a message.
int code_of_failure(const std::string& who, const std::exception_ptr& failure) noexcept {
  try {
    try {
      std::rethrow_exception(failure);
    } catch (const Error& error) {
      tell_launcher(static_cast<int>(error.code()), is_of_a_peer(error), error.what(),
                    error.ranks());
      print_line(who, error.what());
      return static_cast<int>(error.code());
    } catch (...) {
      const Error error = detail::as_error(failure);
      const int code = error.code() == ExitCode::usage ? 1 : static_cast<int>(error.code());
      tell_launcher(code, false, error.what(), {});
      print_line(who, error.what(), mixes_dtypes(error.what()) ? kMixedAdvice : "");
      return code;
    }
  } catch (const std::exception&) {
    const int code = static_cast<int>(ExitCode::out_of_memory);
    tell_launcher(code, false, "", {});
    std::fprintf(stderr, "%s: out of memory, also for a message that says where\n", who.c_str());
    return code;
  }
}

/// While run() runs. Once a device has failed LibTorch's allocators throw where tensors are
/// destroyed, which ends the process at once: then as run() would, with the device's words.
class EndWithFailedDevice {
 public:
  explicit EndWithFailedDevice(const std::string& who) : before_(std::set_terminate(&end)) {
    who_ = &who;
  }
  ~EndWithFailedDevice() { std::set_terminate(before_); }
  EndWithFailedDevice(const EndWithFailedDevice&) = delete;
  EndWithFailedDevice& operator=(const EndWithFailedDevice&) = delete;

 private:
  [[noreturn]] static void end() noexcept {
    try {
      throw;
    } catch (const c10::AcceleratorError&) {
      const std::exception_ptr failure = std::current_exception();
      detail::leave_because(failure);
      std::fflush(stdout);
      std::_Exit(code_of_failure(*who_, failure));
    } catch (...) {
      std::abort();
    }
  }

  static inline const std::string* who_ = nullptr;
  std::terminate_handler before_;
};

}  // namespace

int run(int argc, char** argv, const std::function<void(Runtime&)>& body) {
  return run(argc, argv, RuntimeOptions(), body);
}

int run(int argc, char** argv, const RuntimeOptions& options,
        const std::function<void(Runtime&)>& body) {
  std::string who = "lockstep";
  const EndWithFailedDevice otherwise(who);
  detail::take_failed_save();
  try {
    auto runtime = std::make_unique<Runtime>(argc, argv, options);
    who = c10::str("rank ", runtime->rank());
    try {
      body(*runtime);
    } catch (...) {
      tell_peers(std::current_exception());
      throw;
    }
    // The run is complete: a stop signal must not turn it into a failure.
    const detail::StopSignals late({SIGTERM, SIGUSR1});
    std::cout << std::flush;
    const std::shared_ptr<Runtime::Ends> ends = runtime->ends_;
    const std::unique_ptr<Runtime::Session> session = std::move(runtime->session_);
    session->world = Communicator::solo();
    runtime.reset();
    if (session->mpi) {
      require_equal_ends(ends->names, ends->digests, *session->mpi);
    }
    if (const auto failed = detail::take_failed_save()) {
      throw Error(
          c10::str("the program ended, but its last snapshot is not on the disk: ", failed->what()),
          failed->code(), failed->ranks());
    }
    return static_cast<int>(ExitCode::ok);
  } catch (...) {
    return code_of_failure(who, std::current_exception());
  }
}

}  // namespace lockstep
