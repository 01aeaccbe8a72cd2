// plugins/transport/nccl/link.cc: see link.h.
#include "link.h"

#include <sched.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

#include "joining.h"

namespace gsel_nccl {
namespace {

constexpr useconds_t kPollUs = 20;
constexpr int kYields = 200;         // before sleeps, which take longer than the thread that NCCL starts for a call
constexpr double kAbortSeconds = 2;  // time for an abort before the communicator and its memory are leaked
constexpr int kPollsBetweenLooks = 1000;
constexpr int kMostDevices = 64;

using Clock = std::chrono::steady_clock;

Clock::time_point after(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

std::mutex& mutex_of(const gsel_join& join) {
  static std::mutex mutexes[kMostDevices];
  gsel_device_description device{};
  device.struct_size = sizeof device;
  must([&](gsel_error** err) { return join.device_table->describe(join.device_ctx, &device, err); });
  return mutexes[device.ordinal % kMostDevices];
}

// The families of the process, by id.
struct Families {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Family>> known;
};
Families& families() {
  static auto* the_families = new Families;  // never destroyed: a thread that aborts may outlive main
  return *the_families;
}

std::shared_ptr<Family> family_of(const UniqueId& id) {
  const std::lock_guard lock(families().mutex);
  std::erase_if(families().known, [](const auto& entry) { return entry.second.expired(); });
  auto& found = families().known[std::string(id.bytes, sizeof id.bytes)];
  std::shared_ptr<Family> family = found.lock();
  if (!family) found = family = std::make_shared<Family>();
  const std::lock_guard inside(family->mutex);
  ++family->links;
  return family;
}

// Moves memory that the link has registered and not released to its family; returns memory that can be freed now.
std::vector<void*> release_registered(gsel_link& link) {
  Family& family = *link.family;
  const std::lock_guard lock(family.mutex);
  for (const gsel_window& window : link.windows) family.held.insert(window.memory);
  if (--family.links > 0) return {};
  family.held.clear();
  return std::move(family.freed);
}

int state_of(gsel_link& link) {
  const std::lock_guard lock(link.inside);
  if (link.aborting) return kSuccess;  // the handle may be gone
  int state = kSuccess;
  const int result = link.nccl->ncclCommGetAsyncError(link.comm, &state);
  return result == kSuccess ? state : result;
}

void wait_for_all(gsel_link& link, const gsel_join& join) {
  const auto deadline = after(join.join_timeout_s);
  for (int state; (state = state_of(link)) != kSuccess; usleep(kPollUs)) {
    check(*link.nccl, state, "joining as rank " + std::to_string(join.rank), link.comm);
    must([&](gsel_error** err) { return join.control->look(join.control->ctx, err); });
    if (Clock::now() <= deadline) continue;
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%g s", join.join_timeout_s);
    fail(GSEL_ERR_TIMEOUT, GSEL_NCCL_PLUGIN " timed out: rank " + std::to_string(join.rank) + " waited " + seconds +
                               " for the others to join; NCCL_DEBUG=INFO shows what it waits for");
  }
}

void give_back(gsel_link& link) {
  link.device->free(link.device_ctx, link.token);
}

void free_all(gsel_link* link) noexcept {
  try {
    const Current current(link->device, link->device_ctx);
    for (void* memory : release_registered(*link)) link->nccl->ncclMemFree(memory);
    give_back(*link);
  } catch (...) {  // the device has failed
  }
  delete link;
}

// Waits for enqueued work, whose results the program may still need, then releases everything in NCCL. Throws if a rank
// has died, since the work may wait for it.
void finalize(gsel_link& link) {
  const Library& nccl = *link.nccl;
  const auto call = [&](auto&& function, const char* what) {
    int result;
    {
      const std::lock_guard lock(link.inside);
      result = function();
    }
    for (int polls = 0; result == kInProgress; result = state_of(link), ++polls) {
      if (polls % kPollsBetweenLooks == 0)
        must([&](gsel_error** err) { return link.control->look(link.control->ctx, err); });
      usleep(kPollUs);
    }
    check(nccl, result, what, link.comm);
  };
  call([&] { return nccl.ncclCommFinalize(link.comm); }, "the end of a communicator");
  const std::lock_guard lock(link.inside);
  for (gsel_window& window : link.windows) deregister(link, window);
  link.windows.clear();
  check(nccl, nccl.ncclCommDestroy(link.comm), "the end of a communicator", link.comm);
  link.aborting = true;
}

// Leaks the link if the abort hangs.
void end_aborted(gsel_link* link) noexcept {
  const auto deadline = after(kAbortSeconds);
  while (!link->has_aborted)
    if (Clock::now() < deadline)
      usleep(kPollUs);
    else
      return;
  free_all(link);
}

}  // namespace

bool hold_back(void* memory) {
  const std::lock_guard lock(families().mutex);
  for (const auto& [id, known] : families().known) {
    const std::shared_ptr<Family> family = known.lock();
    if (!family) continue;
    const std::lock_guard inside(family->mutex);
    if (!family->held.contains(memory)) continue;
    family->freed.push_back(memory);
    return true;
  }
  return false;
}

void fail(gsel_status status, const std::string& text) {
  throw Failure{status, text};
}

// NCCL has one result for all errors of CUDA, so this checks the text.
bool is_out_of_memory(const Library& nccl, int result, Comm comm) {
  const char* last = result == kUnhandledCudaError ? nccl.ncclGetLastError(comm) : nullptr;
  return last && std::string_view(last).find("out of memory") != std::string_view::npos;
}

void check(const Library& nccl, int result, const std::string& what, Comm comm) {
  if (result == kSuccess || result == kInProgress) return;
  const bool is_late = result == kTimeout && version_of(nccl) >= kTimeoutSince;
  const gsel_status status = is_late                                                 ? GSEL_ERR_TIMEOUT
                             : is_out_of_memory(nccl, result, comm)                  ? GSEL_ERR_NOMEM
                             : result == kRemoteError                                ? GSEL_ERR_PEER
                             : result == kSystemError                                ? GSEL_ERR_IO
                             : result == kInvalidArgument || result == kInvalidUsage ? GSEL_ERR_ARG
                                                                                     : GSEL_ERR_DEVICE;
  const char *text = nccl.ncclGetErrorString(result), *last = nccl.ncclGetLastError(comm);
  fail(status, GSEL_NCCL_PLUGIN ": " + what + " failed with " + std::to_string(result) + ": " +
                   (text ? text : "unknown error") + (last && *last ? std::string("; ") + last : ""));
}

gsel_status failed(const gsel_host_v1* host, gsel_error** err) noexcept {
  try {
    throw;
  } catch (const Failure& failure) {
    if (err) *err = host->error_new(failure.status, failure.text.c_str());
    return failure.status;
  } catch (const std::pair<gsel_status, gsel_error*>& foreign) {
    if (err) *err = foreign.second;
    return foreign.first;
  } catch (...) {
    if (err) *err = host->error_new(GSEL_ERR_NOMEM, GSEL_NCCL_PLUGIN ": no memory of the host");
    return GSEL_ERR_NOMEM;
  }
}

Current::Current(const gsel_device_v1* device, void* ctx) : device_(device), ctx_(ctx) {
  if (device_->enter) must([&](gsel_error** err) { return device_->enter(ctx_, &before_, err); });
}

Current::~Current() {
  if (device_->leave) device_->leave(ctx_, before_);
}

gsel_link* join(const Transport& transport, const gsel_join& join) {
  const Library* nccl = transport.nccl;
  std::unique_ptr<gsel_link> link(new gsel_link{transport.host, nccl, join.device_table, join.device_ctx, join.rank,
                                                join.world_size, &mutex_of(join), &transport, join.control,
                                                join.timeout_s});
  link->notes.push_back(transport.order.note);
  const UniqueId id = agree_on_id(*nccl, join);
  link->family = family_of(id);
  const Current current(link->device, link->device_ctx);
  must([&](gsel_error** err) {
    return link->device->alloc(link->device_ctx, GSEL_MEMORY_DEVICE, sizeof(int32_t), &link->token, err);
  });
  try {
    Config config;
    const std::lock_guard lock(*link->launching);
    check(*nccl, nccl->ncclCommInitRankConfig(&link->comm, join.world_size, id, join.rank, &config), "joining");
  } catch (...) {
    give_back(*link);
    release_registered(*link);
    throw;
  }
  try {
    wait_for_all(*link, join);
  } catch (...) {
    abort(link.get());
    end_aborted(link.release());
    throw;
  }
  return link.release();
}

void leave(gsel_link* link) noexcept {
  if (link->aborting) return end_aborted(link);
  try {
    const Current current(link->device, link->device_ctx);
    finalize(*link);
  } catch (...) {
    abort(link);
    return end_aborted(link);
  }
  free_all(link);
}

// A thread in a call of this link sees the flag and returns. ncclCommAbort gets its own thread, since it may wait for
// the driver.
void abort(gsel_link* link) noexcept {
  {
    const std::lock_guard lock(link->inside);
    if (link->aborting.exchange(true)) return;
  }
  try {
    std::thread([link] {
      try {
        const Current current(link->device, link->device_ctx);
        link->nccl->ncclCommAbort(link->comm);
      } catch (...) {  // the device and its kernels have failed
      }
      link->has_aborted = true;
    }).detach();
  } catch (const std::system_error&) {  // no thread could be started
    link->nccl->ncclCommAbort(link->comm);
    link->has_aborted = true;
  }
}

void settle(std::span<gsel_link* const> links, const std::string& what, double timeout_s) {
  const auto deadline = after(timeout_s);
  for (gsel_link* link : links)
    for (int polls = 1;; ++polls) {
      const int state = state_of(*link);
      if (polls % kPollsBetweenLooks == 0)
        must([&](gsel_error** err) { return link->control->look(link->control->ctx, err); });
      if (link->aborting) fail(GSEL_ERR_ABORTED, GSEL_NCCL_PLUGIN ": " + what + " was ended by an abort");
      if (state == kSuccess) break;
      check(*link->nccl, state, what, link->comm);
      if (Clock::now() > deadline) {
        must([&](gsel_error** err) { return link->control->look(link->control->ctx, err); });
        fail(GSEL_ERR_TIMEOUT,
             GSEL_NCCL_PLUGIN ": " + what + " timed out before it was on its stream: another rank has not made it");
      }
      polls < kYields ? static_cast<void>(sched_yield()) : static_cast<void>(usleep(kPollUs));
    }
}

}  // namespace gsel_nccl
