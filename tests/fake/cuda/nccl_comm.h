// fake/cuda/nccl_comm.h: a communicator of the double, and what it enqueues. A call is in progress until NCCL's own
// thread has enqueued it, and that thread goes on a little at each poll: after some polls, and, for the first call
// between ranks, once their hosts have made theirs.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "clique.h"
#include "cuda_api.h"
#include "machine.h"

namespace fake_nccl {

// Ends the process: what comes next would be a use of freed memory in NCCL itself.
[[noreturn]] void die(const std::string& text);
int number_in(const char* name, int otherwise);
std::string text_in(const char* name);

struct Comm;
class Node;

// A call as the program made it.
struct Call {
  Comm* comm = nullptr;
  Stream stream = nullptr;
  std::string name, signature;
  int from = -1, to = -1;  // of a message; -1: a collective
  bool sends = false;      // of a message
  const char* send = nullptr;
  char* recv = nullptr;
  uint64_t send_bytes = 0, recv_bytes = 0;
  bool is_posted = false;
  uint64_t number = 0;  // from 1: of the collectives, or of the messages between the two
  // What every rank posted, by rank; of a message only the sender's.
  std::function<void(const std::vector<const char*>& inputs, char* recv)> finish;
  bool is_message() const { return from >= 0; }
};

// Calls that NCCL's thread has not enqueued yet.
struct Job {
  std::vector<Call> calls;
  int polls = 0;
  bool is_done = false;
};

struct Comm {
  std::shared_ptr<Clique> clique;
  int rank = 0;
  uintptr_t context = 0;
  bool is_blocking = false;
  int polls = 0;
  std::atomic<int> state{kInProgress};
  std::shared_ptr<Job> job;
  int listening = -1;  // a socket, until the rank before has connected
  bool has_connected = false;
  bool is_joined = false, is_finalizing = false, is_finalized = false;
  std::atomic<bool> is_aborted{false};
  bool is_ended = false, is_freed = false;  // by destroy or abort; with the last rank of this process
  uint64_t collectives = 0;
  std::map<int, uint64_t> sent, received;
  struct Registration {
    uint64_t bytes = 0;
    int references = 0;
  };
  std::map<void*, Registration> registered;  // by address
  // Windows, which ranks make together. place: in the address space that NCCL shares between ranks.
  struct Window {
    uint64_t bytes, number, place;
  };
  std::map<void*, Window> windows;  // by address
  struct Making {
    void* memory;
    void** out;
    Window window;
  };
  std::optional<Making> making;
  std::vector<Node*> nodes;    // on streams
  std::atomic<int> inside{0};  // threads in calls on this communicator
  std::string last_error;

  RankShare& own() const { return clique->rank(rank); }
  bool has_registered(const void* memory, uint64_t bytes) const;
  // Which window, and where in it; 0: in none.
  uint64_t place_of(const void* memory, uint64_t bytes) const;
};

// Goes on with a window; whether it has been made. nccl_window.cc
bool makes_window(Comm& comm);
// Memory of ncclMemAlloc begins here. nccl_memory.cc
bool is_allocated(uintptr_t begin);
// Memory that NCCL uses is let go: a violation if a call still uses it.
void let_go(const Comm& comm, const void* memory, uint64_t bytes, const char* function);

inline Comm& of(Handle handle) {
  return *static_cast<Comm*>(handle);
}

// A call of the interface on a communicator: one thread at a time, and only while there is one.
class Inside {
 public:
  Inside(Comm& comm, const char* what);
  ~Inside() { --comm_.inside; }
  Inside(const Inside&) = delete;
  Inside& operator=(const Inside&) = delete;

 private:
  Comm& comm_;
};

// What one communicator enqueues at a time: one call, or those of a group. Communication of one device runs in the
// order in which it was enqueued there, over all communicators, as if the device had room for no more; or, as
// GSEL_FAKE_NCCL_ORDER says, in another one.
class Node : public fake_cuda::Joint {
 public:
  Node(fake_cuda::Stream* stream, Comm* comm, uint64_t unit) : stream_(stream), comm_(comm), unit_(unit) {}
  ~Node() override;
  void add(Call call);
  bool can_go() const override;
  bool go() override;
  std::vector<fake_cuda::Stream*> awaited() const override;
  const std::vector<Call>& calls() const { return calls_; }
  fake_cuda::Stream* stream() const { return stream_; }
  uintptr_t device() const { return comm_->context; }
  uint64_t unit() const { return unit_; }

 private:
  bool is_turn() const;
  const Node* whose_turn() const;
  bool is_at_head() const;
  Post& post_of(const Call& call) const;
  bool can_post(const Call& call) const;
  void post(const Call& call);
  void check_reach(const Call& call) const;
  bool is_ready(const Call& call) const;
  void finish(const Call& call) const;
  void check_windows(const Call& call) const;
  void spoil() const;
  std::vector<int> peers(const Call& call) const;  // that the call waits for

  fake_cuda::Stream* stream_;
  Comm* comm_;
  uint64_t unit_;
  std::vector<Call> calls_;  // that have not ended
  bool has_begun_ = false;
};

std::deque<Comm>& all_comms();  // of this process; streams may still hold what one enqueued that is gone
// As the next poll would: whether the job has been enqueued.
bool go_on(Job& job);
// Work of other processes on this one's streams, which goes on there while nobody waits.
void keep_going();

void reduce(int type, int op, const std::vector<const char*>& inputs, char* out, uint64_t first, uint64_t count);
uint64_t bytes_of(int type);

}  // namespace fake_nccl
