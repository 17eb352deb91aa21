// A training program with one fault, for scripts/faults:
//   fault_program FAULT RANK FOLDER
// Trains six updates, saves a snapshot to FOLDER after each second one, and resumes from FOLDER.
// The fault happens on RANK; FAULT is a name that scripts/faults lists, or none. FOLDER.begin gets
// the time at which the fault began, by the clock that time.monotonic() of Python reads. Two more
// faults serve the script's
// counts: `cycle` ends RANK in each attempt, and `steps-N` trains N updates and prints what memory
// and descriptors each rank holds after a tenth of them and at the end.
#include "waiting_peers.h"

#include <ATen/ATen.h>
#include <dlfcn.h>
#include <lockstep/lockstep.h>
#include <sys/resource.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <thread>

namespace {

using lockstep::Loss;
using lockstep::Runtime;
using lockstep::Trainer;
using torch::nn::Linear;

int64_t updates = 6;
constexpr int64_t fault_update = 4;

std::string fault;
int faulty_rank = 0;
int own_rank = 0;

std::string time_file;

/// The fault begins now: writes the time, and tells injected_calls.cpp if that is loaded.
void begin_fault() {
  static std::once_flag once;
  std::call_once(once, [] {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    std::ofstream(time_file) << std::fixed << std::chrono::duration<double>(now).count()
                             << std::endl;
    if (auto* begin = dlsym(RTLD_DEFAULT, "lockstep_test_fault_begins")) {
      reinterpret_cast<void (*)()>(begin)();
    }
  });
}

/// To be asked at the place of the fault: a rank that has it goes on with it.
bool has(const std::string& name) {
  const bool is_here = fault == name && own_rank == faulty_rank;
  if (is_here) {
    begin_fault();
  }
  return is_here;
}

[[noreturn]] void sleep_for_ever() {
  for (;;) {
    pause();
  }
}

[[noreturn]] void throw_fault(const std::string& where) {
  throw std::runtime_error("the fault of this test, in " + where);
}

struct ThrowsWhenDestroyed {
  ~ThrowsWhenDestroyed() noexcept(false) {
    if (has("exception-destructor")) {
      throw_fault("a destructor");
    }
  }
};

void flip(at::Tensor tensor) {
  *static_cast<unsigned char*>(tensor.detach().mutable_data_ptr()) ^= 0x10U;
}

/// Uses up what memory this process may have.
void allocate_too_much() {
  rlimit limit = {};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = rlim_t{1} << 30;
  setrlimit(RLIMIT_AS, &limit);
  at::ones({int64_t{1} << 30}, at::kFloat);
}

/// Leaves no memory at all, for small requests either.
void use_up_memory() {
  std::ifstream file("/proc/self/statm");
  rlim_t pages = 0;
  file >> pages;
  rlimit limit = {};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = pages * static_cast<rlim_t>(getpagesize());
  setrlimit(RLIMIT_AS, &limit);
  for (size_t size = size_t{1} << 24; size >= 16; size /= 2) {
    while (std::malloc(size) != nullptr) {  // NOLINT: kept until the process ends
    }
  }
  at::ones({int64_t{1} << 20});
}

/// The memory and the open descriptors of this process.
void print_holdings(int64_t update) {
  std::ifstream file("/proc/self/statm");
  int64_t pages = 0;
  file >> pages >> pages;
  const std::filesystem::directory_iterator descriptors("/proc/self/fd");
  std::cout << "rank " << own_rank << " after " << update
            << " updates: " << pages * getpagesize() / 1024 << " KiB, "
            << std::distance(begin(descriptors), end(descriptors)) << " descriptors" << std::endl;
}

/// A rank whose place is gone dies in each attempt, as long as it is one of three.
bool is_gone() {
  const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
  return has("rank-gone") && size != nullptr && std::string(size) == "3";
}

/// How a process ends, or does not.
const std::map<std::string, std::function<void()>> processes = {
    {"segv", [] { *reinterpret_cast<volatile int*>(8) = 1; }},
    {"abort", [] { std::abort(); }},
    {"fpe", [] { raise(SIGFPE); }},
    {"kill", [] { raise(SIGKILL); }},
    {"stop", [] { raise(SIGSTOP); }},
    {"exit0", [] { _exit(0); }},
    {"exit7", [] { _exit(7); }},
    {"sleep", sleep_for_ever},
    {"spin",
     [] {
       for (volatile bool spins = true; spins;) {
       }
     }},
};

/// `when` is the beginning of the fault's name: "early-segv".
void disturb(const std::string& when) {
  for (const auto& [name, action] : processes) {
    if (has(when + name)) {
      action();
    }
  }
}

struct Numbers {
  size_t count = 240;
  const lockstep::testing::WaitingPeers* peers = nullptr;
  size_t size() const { return count; }
  std::pair<at::Tensor, at::Tensor> get(size_t index) const {
    if (index > 60 && has("exception-loader")) {
      throw_fault("the data set");
    }
    if (index > 60 && peers != nullptr) {
      peers->fail_in("loader");
    }
    at::Tensor x = at::arange(8, at::kFloat) * (static_cast<double>(index % 17) / 100.0) + 0.1;
    return {x, at::full({2}, static_cast<double>(index % 3))};
  }
};

class Training {
 public:
  Training(Runtime& runtime, std::string folder)
      : runtime_(runtime),
        folder_(std::move(folder)),
        model_(Linear(8, has("wrong-model") ? 20 : 16), Linear(has("wrong-model") ? 20 : 16, 2)),
        peers_(fault, own_rank == faulty_rank ? begin_fault : std::function<void()>()) {}

  void run() {
    if (peers_.is_on()) {
      peers_.add_collective(runtime_, model_);
    }
    auto loader = runtime_.loader(
        has("wrong-data") ? Numbers{200} : Numbers{240, &peers_},
        lockstep::LoaderOptions().batch_size(has("wrong-batch") ? 5 : 4).epochs(100000));
    Trainer trainer(runtime_, model_, optimizer(), options());
    hook();
    const auto found = trainer.resume(folder_);
    if (found.resumed && runtime_.is_main()) {
      std::cout << "resumed at update " << found.update << std::endl;
    }
    for (auto& batch : loader) {
      if (trainer.updates() >= updates || ++steps_ > updates + 34) {
        break;
      }
      at_fault_ = trainer.updates() == fault_update - 1 && !found.resumed;
      const auto& [inputs, targets] = batch;
      if (has("slow")) {
        std::this_thread::sleep_for(std::chrono::milliseconds(30));
      }
      trainer.step([&]() -> Loss { return loss_of(inputs, targets); });
      if (has("cycle")) {
        _exit(7);
      }
      if (at_fault_) {
        after_step(trainer);
      }
      if (trainer.updates() % std::max<int64_t>(2, updates / 10) == 0) {
        trainer.save();
        if (fault == "rank-gone") {
          trainer.finish_saving();  // there is a snapshot when the rank dies
        }
      }
      if (updates > 6 && (trainer.updates() == updates / 10 || trainer.updates() == updates)) {
        print_holdings(trainer.updates());
      }
    }
    if (const auto saved = trainer.finish_saving(); saved && saved->error) {
      throw lockstep::Error("the last snapshot was not saved: " + *saved->error, saved->code,
                            saved->ranks);
    }
    if (runtime_.is_main()) {
      double sum = 0.0;
      for (const auto& [name, master] : trainer.masters()) {
        sum += master.to(at::kDouble).abs().sum().item<double>();
      }
      std::printf("done at update %d, weights %a\n", static_cast<int>(trainer.updates()), sum);
      std::fflush(stdout);
    }
    disturb("end-");
    const ThrowsWhenDestroyed last;
  }

 private:
  /// One from LibTorch, so that its moments can be reached.
  lockstep::TorchOptimizer optimizer() {
    const double momentum = has("wrong-config") ? 0.5 : 0.9;
    return lockstep::TorchOptimizer([this, momentum](std::vector<at::Tensor> masters) {
      auto made = std::make_unique<torch::optim::SGD>(
          std::move(masters), torch::optim::SGDOptions(0.01).momentum(momentum));
      sgd_ = made.get();
      return made;
    });
  }

  lockstep::TrainerOptions options() const {
    auto options = lockstep::TrainerOptions().compare_replicas_every(1);
    if (fault == "nfs-leftovers") {  // an old snapshot is removed
      options.snapshots(lockstep::SnapshotOptions().keep(lockstep::KeepOptions().last(1)));
    }
    if (fault == "flip-master") {
      options.precision(lockstep::Precision::O2(at::kBFloat16));
    }
    return options;
  }

  void hook() {
    model_->parameters()[0].register_hook([this](at::Tensor gradient) {
      if (at_fault_ && has("exception-hook")) {
        throw_fault("a hook");
      }
      if (at_fault_ && has("flip-gradient")) {
        gradient = gradient.clone();
        flip(gradient);
      }
      return gradient;
    });
  }

  Loss loss_of(const at::Tensor& inputs, const at::Tensor& targets) {
    if (at_fault_ && has("exception-closure")) {
      throw_fault("the closure");
    }
    if (at_fault_) {
      peers_.fail_in("closure");
    }
    const at::Tensor values = peers_.values_of(model_->forward(inputs), at_fault_);
    at::Tensor loss = (values - targets).square().mean();
    const bool now = at_fault_ || trainer_is_past_fault();
    for (const auto& [name, value] : {std::pair<const char*, double>{"inf", INFINITY},
                                      {"nan", std::numeric_limits<double>::quiet_NaN()}}) {
      if ((at_fault_ && steps_ == fault_update && has(name + std::string("-once"))) ||
          (now && has(name + std::string("-forever")))) {
        loss = loss * value;
      }
    }
    return loss;
  }

  bool trainer_is_past_fault() const { return steps_ >= fault_update; }

  void after_step(Trainer& trainer) {
    if (own_rank == faulty_rank) {
      begin_fault();
    }
    disturb("");
    if (is_gone()) {
      raise(SIGKILL);
    }
    if (has("exception-loop")) {
      throw_fault("the loop");
    }
    if (has("no-memory")) {
      allocate_too_much();
    }
    if (has("no-memory-left")) {
      use_up_memory();
    }
    const lockstep::Communicator& world = runtime_.communicator();
    if (fault == "wrong-order") {
      const at::Tensor one = at::ones({4});
      lockstep::Communicator(own_rank == faulty_rank ? runtime_.control() : world)
          .all_reduce(one)
          .wait();
    }
    if (fault == "wrong-shapes") {
      lockstep::Communicator(world).all_reduce(at::ones({own_rank == faulty_rank ? 5 : 4})).wait();
    }
    if (has("flip-weight")) {
      flip(model_->parameters()[0]);
    }
    if (has("flip-master")) {
      flip(trainer.masters()[0].second);
    }
    if (has("flip-moment")) {
      for (const auto& [parameter, state] : sgd_->state()) {
        flip(static_cast<torch::optim::SGDParamState&>(*state).momentum_buffer());
      }
    }
  }

  Runtime& runtime_;
  std::string folder_;
  torch::nn::Sequential model_;
  lockstep::testing::WaitingPeers peers_;
  torch::optim::SGD* sgd_ = nullptr;
  int64_t steps_ = 0;
  bool at_fault_ = false;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "see the head of fault_program.cpp\n";
    return 2;
  }
  fault = argv[1];
  faulty_rank = std::atoi(argv[2]);
  time_file = std::string(argv[3]) + ".begin";
  const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
  own_rank = rank == nullptr ? 0 : std::atoi(rank);
  if (fault == "slow") {
    updates = 101;
  }
  if (fault.rfind("steps-", 0) == 0) {
    updates = std::atoll(fault.c_str() + 6);
  }
  const char* attempt = std::getenv("LOCKSTEP_ATTEMPT");
  if (is_gone() && attempt != nullptr && std::string(attempt) != "0") {
    raise(SIGKILL);
  }
  disturb("early-");
  const int code =
      lockstep::run(argc, argv, [&](Runtime& runtime) { Training(runtime, argv[3]).run(); });
  disturb("late-");
  return code;
}
