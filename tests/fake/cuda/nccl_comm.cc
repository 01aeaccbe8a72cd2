// fake/cuda/nccl_comm.cc: libnccl.so.2 as a test double, over the machine of machine.h: communicators, from their
// making to their end. Ranks are threads or processes, each with a device of its own. What NCCL calls undefined, and
// what harms it, is a violation of the machine or ends the process.
//
// The environment says how it behaves, read at each call:
//   GSEL_FAKE_NCCL_VERSION   such as 22809
//   GSEL_FAKE_NCCL_FAILS     number of the call whose communicator then reports a remote error, from 1
//   GSEL_FAKE_NCCL_POLLS     how often a communicator says that it is in progress (3)
//   GSEL_FAKE_NCCL_POLL_US   how long ncclCommGetAsyncError takes while it is (20)
//   GSEL_FAKE_NCCL_ABORT_MS  how long ncclCommAbort takes at least; "hang": it never returns
//   GSEL_FAKE_NCCL_ORDER     "asked": a device begins its calls in the order of their launches if
//                            NCCL_LAUNCH_ORDER_IMPLICIT says so, and else in another one; "none": in another one; not
//                            set: in that order
//   GSEL_FAKE_NCCL_ABORTED   "untouched": calls of a communicator that is aborted leave their buffers as they were;
//   else
//                            they write what is no result
//   GSEL_FAKE_NCCL_WINDOWS   what ncclCommWindowRegister does on this rank: "null": no window, and no error, as without
//                            symmetric memory; "plain": a registration in place of a window, as 2.28 then does;
//                            "fails": an error of this rank alone, while the others wait; "refuses": the same at once
//   GSEL_FAKE_NCCL_REGISTERS "null": ncclCommRegister registers nothing, as with NCCL_LOCAL_REGISTER=0; "refuses": it
//   is
//                            an error
//   GSEL_FAKE_NCCL_DEATHS    "told": the death of another process is a remote error, as over a network; else it is not
//                            noticed, as over NVLink
//
//   NCCL_SOCKET_IFNAME, NCCL_HOSTID  as NCCL takes them: ranks meet over TCP, and two with one device are told by host
//
// Not modelled: channels and protocols, the order in which symmetric kernels add, graphs, splitShare, ncclCommShrink,
// and a second connection for another algorithm. A message waits for its receive, however short it is. A rank has 64
// MiB under way.
#include "nccl_comm.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <mutex>

#include "driver.h"
#include "nccl_api.h"
#include "nccl_bootstrap.h"

using fake_cuda::Machine;
using namespace fake_nccl;

namespace fake_nccl {

void die(const std::string& text) {
  fprintf(stderr, "fake nccl: %s\n", text.c_str());
  fflush(nullptr);
  abort();
}

int number_in(const char* name, int otherwise) {
  const char* text = getenv(name);
  return text && *text ? atoi(text) : otherwise;
}

std::string text_in(const char* name) {
  const char* text = getenv(name);
  return text ? text : "";
}

Inside::Inside(Comm& comm, const char* what) : comm_(comm) {
  if (comm.inside++ > 0)
    die(std::string(what) +
        " while another thread is in a call on the same communicator, which frees what that call uses");
  if (comm.is_freed) die(std::string(what) + " on a communicator that has been freed");
}

std::deque<Comm>& all_comms() {
  static auto* const all = new std::deque<Comm>;
  return *all;
}

bool Comm::has_registered(const void* memory, uint64_t bytes) const {
  const auto at = reinterpret_cast<uintptr_t>(memory);
  return std::ranges::any_of(registered, [&](const auto& entry) {
    const auto begin = reinterpret_cast<uintptr_t>(entry.first);
    return begin <= at && at + bytes <= begin + entry.second.bytes;
  });
}

}  // namespace fake_nccl

namespace {

std::atomic<int> n_asked;

int failed(Comm& comm, int result, const std::string& why) {
  comm.last_error = why;
  return result;
}

void stop_listening(Comm& comm) {
  if (comm.listening >= 0) close(comm.listening);
  comm.listening = -1;
}

// What ncclCommGetAsyncError finds. Joins the thread of a call that has ended.
int state_of(Comm& comm) {
  if (comm.state != kInProgress) return comm.state;
  if (comm.is_aborted) return comm.state = kInternalError;
  if (!comm.is_joined) {
    for (int q = 0; q < comm.clique->n_ranks(); ++q)
      if (!comm.clique->rank(q).has_joined) return kInProgress;
    for (int q = 0; q < comm.clique->n_ranks(); ++q)
      for (int p = 0; p < q; ++p)
        if (comm.clique->rank(p).device == comm.clique->rank(q).device &&
            comm.clique->rank(p).host == comm.clique->rank(q).host)
          return comm.state =
                     failed(comm, kInvalidUsage,
                            "Duplicate GPU detected : rank " + std::to_string(q) + " and rank " + std::to_string(p));
    for (int q = 0; q < comm.clique->n_ranks(); ++q)
      if (comm.clique->rank(q).version != comm.own().version)
        return comm.state = failed(comm, kInvalidUsage, "Mismatched NCCL version detected");
    if (!comm.has_connected) {
      RankShare& next = comm.clique->rank((comm.rank + 1) % comm.clique->n_ranks());
      if (next.pid != getpid() && !bootstrap_reaches(next.address, static_cast<uint16_t>(next.port)))
        return comm.state = failed(comm, kSystemError, "socketStartConnect: the next rank is not reached");
      comm.has_connected = true;
      next.is_reached = 1;
    }
    if (!comm.own().is_reached) return kInProgress;
    stop_listening(comm);
    comm.is_joined = true;
    keep_going();
  }
  if (comm.polls-- > 0) return kInProgress;
  if (comm.job && !go_on(*comm.job)) return kInProgress;
  if (comm.making && !makes_window(comm)) return comm.state;
  if (comm.is_finalizing && !comm.nodes.empty()) {
    Machine::get().nudge(comm.nodes.front()->stream());
    if (!comm.nodes.empty()) return kInProgress;
  }
  if (comm.is_finalizing) comm.is_finalized = true;
  comm.job.reset();
  return comm.state = kSuccess;
}

void notice_deaths(Comm& comm) {
  if (comm.state == kRemoteError || text_in("GSEL_FAKE_NCCL_DEATHS") != "told" || !comm.is_joined) return;
  for (int q = 0; q < comm.clique->n_ranks(); ++q)
    if (!comm.clique->rank(q).has_gone && comm.clique->is_dead(q)) comm.state = kRemoteError;
}

// The communicator is ready for the next call.
int ensure_ready(Comm& comm) {
  if (comm.is_aborted) return kSuccess;
  const int state = comm.state;
  return state == kInProgress ? failed(comm, kInvalidArgument,
                                       "Attempt to use communicator before the previous operation returned ncclSuccess")
                              : state;
}

void wait_for_nodes(Comm& comm) {
  while (!comm.nodes.empty()) {
    Machine& machine = Machine::get();
    if (machine.nudge(comm.nodes.front()->stream())) continue;
    machine.mutex().unlock();
    usleep(50);
    machine.mutex().lock();
  }
}

// The last rank of this process that lets go frees what all of them have.
void reclaim(Comm& comm) {
  comm.is_ended = true;
  stop_listening(comm);
  comm.own().has_gone = 1;
  std::vector<Comm*> family;
  for (Comm& other : all_comms())
    if (other.clique == comm.clique) family.push_back(&other);
  if (!std::ranges::all_of(family, [](const Comm* c) { return c->is_ended; })) return;
  for (Comm* member : family)
    if (!member->is_finalized) wait_for_nodes(*member);
  for (Comm* member : family) {
    member->is_freed = true;
    member->registered.clear();
    member->windows.clear();
  }
}

bool is_current(uintptr_t* context) {
  void* found = nullptr;
  fake_cuda::cuCtxGetCurrent(&found);
  *context = reinterpret_cast<uintptr_t>(found);
  return found != nullptr;
}

}  // namespace

// What tests ask: the interface that ranks meet over.
EXPORT const char* fake_nccl_interface() {
  static thread_local std::string name;
  name = bootstrap_interface();
  return name.c_str();
}

// How often NCCL was asked for its version, an id or a communicator.
EXPORT int fake_nccl_calls() {
  return n_asked;
}

EXPORT int ncclGetVersion(int* version) {
  ++n_asked;
  *version = number_in("GSEL_FAKE_NCCL_VERSION", 22809);
  return kSuccess;
}

EXPORT int ncclGetUniqueId(UniqueId* id) {
  ++n_asked;
  if (bootstrap_interface().empty()) return kInvalidUsage;  // "Bootstrap : no socket interface found"
  *id = Clique::make_id();
  return kSuccess;
}

EXPORT int ncclCommInitRankConfig(Handle* out, int n_ranks, UniqueId id, int rank, Config* config) {
  ++n_asked;
  *out = nullptr;
  if (config && (config->magic != kConfigMagic || config->size < sizeof *config)) return kInvalidArgument;
  if (n_ranks < 1 || n_ranks > kMostRanks || rank < 0 || rank >= n_ranks) return kInvalidArgument;
  uintptr_t context = 0;
  if (!is_current(&context)) return kUnhandledCudaError;
  std::unique_lock lock(Machine::get().mutex());
  auto clique = Clique::open(id, n_ranks);
  if (!clique) return kSystemError;
  const Listening listening = bootstrap_listen();
  if (listening.fd < 0) return kInvalidUsage;
  Comm& comm = all_comms().emplace_back();
  comm.clique = clique;
  comm.listening = listening.fd;
  comm.rank = rank;
  comm.context = context;
  comm.is_blocking = !config || config->blocking != 0;
  comm.polls = number_in("GSEL_FAKE_NCCL_POLLS", 3);
  RankShare& own = comm.own();
  own.pid = getpid();
  own.device = static_cast<int>(context);
  own.host = bootstrap_host();
  own.address = listening.address;
  own.port = listening.port;
  ncclGetVersion(reinterpret_cast<int*>(&own.version));
  own.has_joined = 1;
  *out = &comm;
  if (!comm.is_blocking) return kInProgress;
  int state;
  while ((state = state_of(comm)) == kInProgress) {
    lock.unlock();
    usleep(50);
    lock.lock();
  }
  return state;
}

EXPORT int ncclCommGetAsyncError(Handle handle, int* out) {
  Comm& comm = of(handle);
  const fake_cuda::Inside timed;
  const Inside inside(comm, "ncclCommGetAsyncError");
  bool is_under_way;
  {
    const std::lock_guard lock(Machine::get().mutex());
    notice_deaths(comm);
    is_under_way = comm.state == kInProgress;
    *out = state_of(comm);
  }
  if (is_under_way) usleep(static_cast<useconds_t>(number_in("GSEL_FAKE_NCCL_POLL_US", 20)));
  return kSuccess;
}

EXPORT int ncclCommFinalize(Handle handle) {
  Comm& comm = of(handle);
  const Inside inside(comm, "ncclCommFinalize");
  const std::lock_guard lock(Machine::get().mutex());
  if (const int result = ensure_ready(comm)) return result;
  if (comm.is_finalizing) return failed(comm, kInvalidArgument, "finalized twice");
  comm.is_finalizing = true;
  if (comm.is_blocking) {
    wait_for_nodes(comm);
    comm.is_finalized = true;
    return kSuccess;
  }
  comm.polls = number_in("GSEL_FAKE_NCCL_POLLS", 3);
  return comm.state = kInProgress;
}

EXPORT int ncclCommDestroy(Handle handle) {
  Comm& comm = of(handle);
  const Inside inside(comm, "ncclCommDestroy");
  const std::lock_guard lock(Machine::get().mutex());
  if (comm.is_ended) die("ncclCommDestroy of a communicator that was destroyed or aborted before");
  if (const int result = ensure_ready(comm)) return result;
  reclaim(comm);
  return kSuccess;
}

EXPORT int ncclCommAbort(Handle handle) {
  Comm& comm = of(handle);
  comm.is_aborted = true;  // what waits inside of a call comes out, if it can in time
  for (int turn = 0; turn < 200 && comm.is_blocking && comm.inside > 0; ++turn) usleep(50);
  const Inside inside(comm, "ncclCommAbort");
  const std::string length = text_in("GSEL_FAKE_NCCL_ABORT_MS");
  while (length == "hang") pause();
  usleep(static_cast<useconds_t>(atoi(length.c_str())) * 1000);
  const std::lock_guard lock(Machine::get().mutex());
  if (comm.is_ended) die("ncclCommAbort of a communicator that was destroyed or aborted before");
  comm.job.reset();
  reclaim(comm);
  return kSuccess;
}
