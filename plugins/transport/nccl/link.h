// plugins/transport/nccl/link.h: one rank's communicator of NCCL, from joining to its end. It is non-blocking, so that
// a thread that waits inside of NCCL can be called back. NCCL wants one thread at a time on a device, hence a lock for
// each.
#pragma once

#include <gsel/transport.h>

#include <atomic>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>

#include "library.h"

namespace gsel_nccl {

struct Failure {
  gsel_status status;
  std::string text;
};

[[noreturn]] void fail(gsel_status status, const std::string& text);
// Throws a Failure for what is neither a success nor in progress; `what` was asked for.
void check(const Library& nccl, int result, const std::string& what, Comm comm = nullptr);
// Status and error of what is being thrown.
gsel_status failed(const gsel_host_v1* host, gsel_error** err) noexcept;
// Makes a call of one of the host's tables, call(&err), and throws what it returns.
template <class Call>
void must(Call&& call) {
  gsel_error* err = nullptr;
  const gsel_status status = call(&err);
  if (status != GSEL_OK) throw std::pair(status, err);
}

}  // namespace gsel_nccl

struct gsel_link {
  const gsel_host_v1* host;
  const gsel_nccl::Library* nccl;
  const gsel_device_v1* device;
  void* device_ctx;
  int32_t rank;
  int32_t world_size;
  std::mutex* mutex;  // of the device
  gsel_nccl::Comm comm = nullptr;
  std::atomic<bool> aborting{false};
  void* token = nullptr;                   // memory of the device that a barrier reduces
  std::map<void*, void*> registrations{};  // handles by memory; guarded by mutex
  std::map<void*, bool> allocations{};     // by memory, whether NCCL allocated it; guarded by mutex
};

namespace gsel_nccl {

// Makes the device current on this thread while it lives.
class Current {
 public:
  Current(const gsel_device_v1* device, void* ctx);
  ~Current();
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  const gsel_device_v1* device_;
  void* ctx_;
  void* before_ = nullptr;
};

gsel_link* join(const gsel_host_v1* host, const gsel_join& join);
void leave(gsel_link* link) noexcept;
void abort(gsel_link* link) noexcept;
// Until NCCL has enqueued what it was asked for.
void settle(std::span<gsel_link* const> links, const std::string& what);

// Parts of the table.
void add_calls(gsel_transport_v1& table);
void add_memory(gsel_transport_v1& table);

}  // namespace gsel_nccl
