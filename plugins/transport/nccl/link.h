// plugins/transport/nccl/link.h: one rank's communicator of NCCL, from joining to its end. It is non-blocking, so that
// a thread that waits inside of NCCL can be called back. One thread at a time is inside of NCCL with a communicator,
// and that holds for looking at its state as well: ncclCommGetAsyncError frees what a call has left. One thread at a
// time launches on a device. No lock is held while other ranks are waited for.
#pragma once

#include <gsel/transport.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "library.h"

namespace gsel_nccl {

// What a transport has for all its links.
struct Transport {
  const gsel_host_v1* host;
  const Library* nccl;
  int version;  // of it
};

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

// The links of this process that joined with one id. What an aborted communicator has registered, others of them may
// still reach: memory that the program frees meanwhile is freed with the last of them.
struct Family {
  std::mutex mutex{};
  int links = 0;
  std::set<void*> held{};      // registered with a link that was aborted
  std::vector<void*> freed{};  // of these, by the program
};
// Whether a family holds the memory, which it frees later then.
bool hold_back(void* memory);

}  // namespace gsel_nccl

struct gsel_link {
  const gsel_host_v1* host;
  const gsel_nccl::Library* nccl;
  const gsel_device_v1* device;
  void* device_ctx;
  int32_t rank;
  int32_t world_size;
  std::mutex* launching;  // of the device; taken before `inside`
  const gsel_control_v1* control;
  std::shared_ptr<gsel_nccl::Family> family{};
  gsel_nccl::Comm comm = nullptr;
  std::mutex inside{};  // of NCCL with this communicator
  std::atomic<bool> aborting{false}, has_aborted{false};
  void* token = nullptr;             // memory of the device that a barrier reduces
  std::map<void*, void*> windows{};  // memory by handle; guarded by inside
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
// Ends the communicator on a thread of its own, since NCCL may wait in the driver; does not wait for that.
void abort(gsel_link* link) noexcept;
// Until NCCL has enqueued what it was asked for, or for so long. Holds no lock.
void settle(std::span<gsel_link* const> links, const std::string& what, double timeout_s);

// Parts of the table.
void add_calls(gsel_transport_v2& table);
void add_memory(gsel_transport_v2& table);

}  // namespace gsel_nccl
