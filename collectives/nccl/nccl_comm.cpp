#include <lockstep/collectives/exceptions.h>
#include <lockstep/collectives/exit_code.h>
#include <lockstep/collectives/impl/backoff.h>
#include <lockstep/collectives/impl/life_sign.h>
#include <lockstep/collectives/nccl/nccl_comm.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <future>
#include <thread>

namespace lockstep::detail {

std::shared_ptr<NcclComm> NcclComm::init(std::shared_ptr<NcclApi> api,
                                         const std::vector<NcclApi::Id>& ids, Place place,
                                         NcclDeadlines deadlines, const Idle& idle) {
  std::shared_ptr<NcclComm> comm(new NcclComm(std::move(api), place, deadlines));
  comm->settle("ncclCommInitRankConfig",
               comm->api_->init(&comm->handle_, place.size, ids, place.rank), idle);
  comm->started_ = true;
  return comm;
}

std::shared_ptr<NcclComm> NcclComm::split(int color, int key, Place place, const Idle& idle) {
  std::shared_ptr<NcclComm> part(new NcclComm(api_, place, deadlines_));
  part->started_ = true;
  try {
    call(
        "ncclCommSplit",
        [&](NcclApi& api, NcclApi::Handle handle) {
          return api.split(handle, color, key, &part->handle_);
        },
        idle);
  } catch (...) {
    new std::shared_ptr<NcclComm>(part);  // NCCL writes to it until an abort ends, if one does
    throw;
  }
  if (color < 0) {
    return nullptr;
  }
  part->settle("ncclCommSplit", part->poll(), idle);
  return part;
}

NcclComm::~NcclComm() {
  if (handle_ == nullptr) {
    return;
  }
  if (aborted_.load()) {
    if (abort() && !abort_returns()) {
      ask_for_end(place_.rank, "ncclCommAbort has not returned");
    }
    return;
  }
  if (std::uncaught_exceptions() > 0) {
    deadlines_.call = std::min(deadlines_.call, deadlines_.abort);
  }
  try {
    call(
        "ncclCommFinalize",
        [](NcclApi& api, NcclApi::Handle handle) { return api.finalize(handle); }, [] {});
    // The handle is invalid after this call, whatever it returns.
    inside([](NcclApi& api, NcclApi::Handle handle) { return api.destroy(handle); });
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lockstep: while closing a communicator: %s\n", error.what());
  }
}

/// Waits until the call that returned `status` is done.
void NcclComm::settle(const char* what, NcclStatus status, const Idle& idle) {
  Backoff backoff(/*crowded=*/true);
  while (status == NcclStatus::in_progress) {
    try {
      idle();
    } catch (...) {
      abort();
      throw;
    }
    if (backoff.seconds() > std::chrono::duration<double>(deadlines_.call).count()) {
      fail(what, c10::str("not done after ", backoff.seconds(),
                          " s: a rank has not arrived, or the ranks' NCCL cannot reach each other "
                          "(NCCL_DEBUG=INFO says more)"));
    }
    backoff.pause();
    status = poll();
  }
  if (aborted_.load()) {
    fail(what, "the communicator was aborted meanwhile");
  }
  if (status != NcclStatus::success) {
    fail(what, words_on(status));
  }
}

NcclStatus NcclComm::poll() {
  return inside([](NcclApi& api, NcclApi::Handle handle) { return api.poll(handle); });
}

std::string NcclComm::words_on(NcclStatus status) {
  std::string words = c10::str("NCCL reports ", status_name(status));
  inside([&](NcclApi& api, NcclApi::Handle handle) {
    words += ": " + api.last_error(handle);
    return status;
  });
  return words;
}

void NcclComm::fail(const char* what, const std::string& why) {
  const bool ended = abort();
  const std::string text =
      c10::str("rank ", place_.rank, " of ", place_.size, ": ", what, ": ", why,
               ended ? "" : "; ncclCommAbort has not returned, so this process should end");
  if (!started_) {
    throw Error(text, ExitCode::environment);  // a restart would meet the same machine
  }
  throw CommunicationError(text + ". Restart from the last snapshot.");
}

int NcclComm::premultiplied_sum(c10::ScalarType dtype, double factor) {
  const auto known = operators_.find({dtype, factor});
  if (known != operators_.end()) {
    return known->second;
  }
  int op = 0;
  call(
      "ncclRedOpCreatePreMulSum",
      [&](NcclApi& api, NcclApi::Handle handle) {
        return api.make_premultiplied_sum(handle, dtype, factor, &op);
      },
      [] {});
  return operators_[{dtype, factor}] = op;
}

bool NcclComm::register_memory(void* memory, size_t bytes, void** token) {
  return inside([&](NcclApi& api, NcclApi::Handle handle) {
           return api.register_memory(handle, memory, bytes, token);
         }) == NcclStatus::success;
}

void NcclComm::deregister_memory(void* token) {
  inside(
      [&](NcclApi& api, NcclApi::Handle handle) { return api.deregister_memory(handle, token); });
}

std::string NcclComm::failure() {
  const std::unique_lock<std::timed_mutex> alone(inside_, std::try_to_lock);
  if (!alone.owns_lock() || aborted_.load()) {
    return {};
  }
  const NcclStatus state = api_->poll(handle_);
  const bool well = state == NcclStatus::success || state == NcclStatus::in_progress;
  return well ? "" : c10::str("NCCL reports ", status_name(state), ": ", api_->last_error(handle_));
}

bool NcclComm::abort() noexcept {
  const std::unique_lock<std::timed_mutex> once(inside_, deadlines_.abort);
  if (!once.owns_lock()) {
    return false;
  }
  if (aborted_.exchange(true) || handle_ == nullptr) {
    return abort_returned_;
  }
  try {
    auto done = std::make_shared<std::promise<void>>();
    abort_ = done->get_future();
    std::thread([api = api_, handle = handle_, done] {
      api->abort(handle);
      done->set_value();
    }).detach();
    abort_returned_ = has_graphs_.load() || abort_returns();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "lockstep: ncclCommAbort was not called: %s\n", error.what());
    abort_returned_ = false;
  }
  return abort_returned_;
}

bool NcclComm::abort_returns() const {
  return abort_.wait_for(deadlines_.abort) == std::future_status::ready;
}

void ask_for_end(int rank, const std::string& why) {
  std::fprintf(stderr, "lockstep: rank %d: %s; end this process\n", rank, why.c_str());
  give(LifeSign::stuck, to_text(EndSign{static_cast<int>(ExitCode::peer_lost), false, why}));
}

}  // namespace lockstep::detail
