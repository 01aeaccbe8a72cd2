// plugins/transport/nccl/link.h: one rank's NCCL communicator, from joining to its end. It is non-blocking, so that a
// wait in NCCL can be aborted. One thread at a time calls NCCL with a communicator, also for its state, since
// ncclCommGetAsyncError frees resources of earlier calls. One thread at a time launches on a device. No lock is held
// while waiting for other ranks.
#pragma once

#include <gsel/transport.h>

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "library.h"

namespace gsel_nccl {

// Whether NCCL begins the calls of a device in the order in which they were launched, over all communicators, and why.
struct LaunchOrder {
  bool is_kept;
  std::string note;
};
// Asks NCCL for it where that is left open and not too late. joining.cc
LaunchOrder ask_for_order(const Library& nccl, int version);

// Shared by all links of a transport.
struct Transport {
  const gsel_host_v1* host;
  const Library* nccl;
  int version;  // of NCCL
  LaunchOrder order;
};

struct Failure {
  gsel_status status;
  std::string text;
};

[[noreturn]] void fail(gsel_status status, const std::string& text);
bool is_out_of_memory(const Library& nccl, int result, Comm comm);
// Throws a Failure unless the result is a success or in progress: GSEL_ERR_NOMEM where memory of the device was too
// little. what: the call, for the text.
void check(const Library& nccl, int result, const std::string& what, Comm comm = nullptr);
// Status and error of the exception being handled.
gsel_status failed(const gsel_host_v1* host, gsel_error** err) noexcept;
// Makes a call of one of the host's tables, call(&err), and throws its error.
template <class Call>
void must(Call&& call) {
  gsel_error* err = nullptr;
  const gsel_status status = call(&err);
  if (status != GSEL_OK) throw std::pair(status, err);
}

// The links of this process that joined with one id. Other links may still access memory that an aborted one has
// registered, so such memory is freed with the last link if the program frees it before.
struct Family {
  std::mutex mutex{};
  int links = 0;
  std::set<void*> held{};      // registered with a link that was aborted
  std::vector<void*> freed{};  // subset of held that the program has freed
};
// true: a family holds the memory and frees it later.
bool hold_back(void* memory);

}  // namespace gsel_nccl

// Memory that a link has registered: at most one of the two.
struct gsel_window {
  void* memory;
  uint64_t bytes;
  uint64_t number;  // of the link's registrations, from 1; the same on all ranks
  gsel_nccl::Window window = nullptr;
  void* registration = nullptr;  // by ncclCommRegister
};

struct gsel_link {
  const gsel_host_v1* host;
  const gsel_nccl::Library* nccl;
  const gsel_device_v1* device;
  void* device_ctx;
  int32_t rank;
  int32_t world_size;
  std::mutex* launching;  // of the device; taken before `inside`
  const gsel_nccl::Transport* transport;
  const gsel_control_v1* control;
  double timeout_s;
  std::shared_ptr<gsel_nccl::Family> family{};
  gsel_nccl::Comm comm = nullptr;
  std::mutex inside{};  // held in NCCL calls with this communicator
  std::atomic<bool> aborting{false}, has_aborted{false};
  void* token = nullptr;             // device memory that a barrier reduces
  std::list<gsel_window> windows{};  // guarded by inside; NCCL may still write to one whose making has failed
  uint64_t registrations = 0;        // so far
  uint64_t released = 0;             // of windows that were released: a sum of hashes of their numbers
  std::list<std::string> notes{};    // the last is that of link_note; earlier ones live as long as the link
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

gsel_link* join(const Transport& transport, const gsel_join& join);
void leave(gsel_link* link) noexcept;
// Aborts the communicator on a thread of its own, since NCCL may wait in the driver; does not wait for that.
void abort(gsel_link* link) noexcept;
// Waits until NCCL has enqueued earlier calls. Holds no lock.
void settle(std::span<gsel_link* const> links, const std::string& what, double timeout_s);

// An allocation of ncclMemAlloc that the program has not freed; bytes 0: other memory.
struct Allocation {
  uintptr_t begin = 0;
  uint64_t bytes = 0;
};
Allocation allocation_of(const void* memory);

// Registers memory with a link. Called by all ranks, which agree on the way, since NCCL leaves it undefined if ranks
// mix them: windows, ncclCommRegister, or none. nullptr: none. register.cc
gsel_window* register_memory(gsel_link& link, void* memory, uint64_t bytes);
// link.inside is held, or nobody else calls NCCL with the link.
void release_window(gsel_link& link, gsel_window* window);
void deregister(gsel_link& link, gsel_window& window);

// Parts of the table.
void add_calls(gsel_transport_v2& table);
void add_memory(gsel_transport_v2& table);

}  // namespace gsel_nccl
