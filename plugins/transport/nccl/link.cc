// plugins/transport/nccl/link.cc: see link.h.
#include "link.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <vector>

namespace gsel_nccl {
namespace {

constexpr useconds_t kPollUs = 20;
constexpr double kLeaveSeconds = 10;  // for what NCCL still has to send
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

int state_of(const gsel_link& link) {
  int state = kSuccess;
  const int result = link.nccl->ncclCommGetAsyncError(link.comm, &state);
  return result == kSuccess ? state : result;
}

// Rank 0 makes an id for all.
UniqueId agree_on_id(const Library& nccl, const gsel_join& join) {
  struct Offer {
    UniqueId id;
    int result;
  } own{};
  if (join.rank == 0) own.result = nccl.ncclGetUniqueId(&own.id);
  std::vector<Offer> all(static_cast<size_t>(join.world_size));
  must([&](gsel_error** err) { return join.exchange(join.control, &own, all.data(), sizeof own, err); });
  check(nccl, all[0].result, "making an id on rank 0");
  return all[0].id;
}

void wait_for_all(const gsel_link& link, const gsel_join& join) {
  const auto deadline = after(join.join_timeout_s);
  for (int state; (state = state_of(link)) != kSuccess; usleep(kPollUs)) {
    check(*link.nccl, state, "joining as rank " + std::to_string(join.rank), link.comm);
    must([&](gsel_error** err) { return join.look(join.control, err); });
    if (Clock::now() <= deadline) continue;
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%g s", join.join_timeout_s);
    fail(GSEL_ERR_TIMEOUT, "nccl: rank " + std::to_string(join.rank) + " waited " + seconds +
                               " for the others to join; NCCL_DEBUG=INFO shows what it waits for");
  }
}

}  // namespace

void fail(gsel_status status, const std::string& text) {
  throw Failure{status, text};
}

void check(const Library& nccl, int result, const std::string& what, Comm comm) {
  if (result == kSuccess || result == kInProgress) return;
  const bool is_late = result == kTimeout && nccl.version >= kTimeoutSince;
  const gsel_status status = is_late                                                 ? GSEL_ERR_TIMEOUT
                             : result == kRemoteError                                ? GSEL_ERR_PEER
                             : result == kSystemError                                ? GSEL_ERR_IO
                             : result == kInvalidArgument || result == kInvalidUsage ? GSEL_ERR_ARG
                                                                                     : GSEL_ERR_DEVICE;
  const char *text = nccl.ncclGetErrorString(result), *last = nccl.ncclGetLastError(comm);
  fail(status, "nccl: " + what + " failed with " + std::to_string(result) + ": " + (text ? text : "unknown error") +
                   (last && *last ? std::string("; ") + last : ""));
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
    if (err) *err = host->error_new(GSEL_ERR_NOMEM, "nccl: no memory of the host");
    return GSEL_ERR_NOMEM;
  }
}

Current::Current(const gsel_device_v1* device, void* ctx) : device_(device), ctx_(ctx) {
  if (device_->enter) must([&](gsel_error** err) { return device_->enter(ctx_, &before_, err); });
}

Current::~Current() {
  if (device_->leave) device_->leave(ctx_, before_);
}

gsel_link* join(const gsel_host_v1* host, const gsel_join& join) {
  std::string why;
  const Library* nccl = library(&why);
  if (!nccl) fail(GSEL_ERR_NOT_FOUND, why);
  std::unique_ptr<gsel_link> link(
      new gsel_link{host, nccl, join.device_table, join.device_ctx, join.rank, join.world_size, &mutex_of(join)});
  const UniqueId id = agree_on_id(*nccl, join);
  const Current current(link->device, link->device_ctx);
  must([&](gsel_error** err) {
    return link->device->alloc(link->device_ctx, GSEL_MEMORY_DEVICE, sizeof(int32_t), &link->token, err);
  });
  try {
    Config config;
    const std::lock_guard lock(*link->mutex);
    check(*nccl, nccl->ncclCommInitRankConfig(&link->comm, join.world_size, id, join.rank, &config), "joining");
  } catch (...) {
    link->device->free(link->device_ctx, link->token);
    throw;
  }
  try {
    wait_for_all(*link, join);
  } catch (...) {
    abort(link.get());
    link->device->free(link->device_ctx, link->token);
    throw;
  }
  return link.release();
}

// The kernels of a communicator that is in order end by themselves, those of an aborted one have ended.
void leave(gsel_link* link) noexcept {
  try {
    const Current current(link->device, link->device_ctx);
    const std::lock_guard lock(*link->mutex);
    const Library& nccl = *link->nccl;
    if (!link->aborting.exchange(true)) {
      for (const auto& [memory, handle] : link->registrations) nccl.ncclCommDeregister(link->comm, handle);
      const auto deadline = after(kLeaveSeconds);
      int result = nccl.ncclCommFinalize(link->comm);
      while (result == kInProgress && Clock::now() < deadline) usleep(kPollUs), result = state_of(*link);
      result == kSuccess ? nccl.ncclCommDestroy(link->comm) : nccl.ncclCommAbort(link->comm);
    }
    for (const auto& [memory, by_nccl] : link->allocations)
      by_nccl ? static_cast<void>(nccl.ncclMemFree(memory)) : link->device->free(link->device_ctx, memory);
    link->device->free(link->device_ctx, link->token);
  } catch (...) {  // the device has failed; there is nothing to give back to
  }
  delete link;
}

// Who is inside a call of this link sees the flag and comes out.
void abort(gsel_link* link) noexcept {
  if (link->aborting.exchange(true)) return;
  try {
    const Current current(link->device, link->device_ctx);
    const std::lock_guard lock(*link->mutex);
    link->nccl->ncclCommAbort(link->comm);
  } catch (...) {
  }
}

void settle(std::span<gsel_link* const> links, const std::string& what) {
  for (gsel_link* link : links)
    for (int state; (state = state_of(*link)) != kSuccess; usleep(kPollUs)) {
      check(*link->nccl, state, what, link->comm);
      if (link->aborting) fail(GSEL_ERR_ABORTED, "nccl: " + what + " was ended by an abort");
    }
}

}  // namespace gsel_nccl
