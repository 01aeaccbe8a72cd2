// plugins/transport/cuda_ipc/link.h: one rank's end of a communicator whose ranks share their devices' memory. What a
// rank gives lies in its own slot or box; others take it from there with kernels of their own. No kernel waits: streams
// do, for words of the host's memory, or, where streams cannot, the host.
#pragma once

#include <gsel/transport.h>

#include <array>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "arena.h"
#include "transport/common/current.h"
#include "transport/common/failure.h"

namespace gsel_ipc {

// A slot is empty, or full. A stream waits until a word is at least a number, as a cyclic comparison has it.
constexpr uint32_t kEmpty = 0, kFull = 0x80000000u;
constexpr uint32_t kUntilEmpty = 0, kUntilFull = 1;

}  // namespace gsel_ipc

struct gsel_link {
  const gsel_host_v1* host;
  const gsel_ipc::Driver* driver;
  const gsel_device_v1* device;
  void* device_ctx;
  const gsel_control_v1* control;
  int32_t rank, world_size;
  bool by_streams = false;  // streams wait; else the host does
  std::string note{};
  std::unique_ptr<gsel_ipc::Arena> arena{};

  std::mutex inside{};                    // held while calls are enqueued
  int slot = 0;                           // of the next round of a collective, the same on all ranks
  std::vector<int> box_to{}, box_from{};  // of the next part of a message, by rank
  gsel_event* last = nullptr;             // after the latest call
  unsigned long long latest_capture = 0;  // in which it was recorded; 0: it was not
  bool has_call = false;
  bool is_lost = false;         // work was enqueued behind which no event could be recorded
  gsel_event* spare = nullptr;  // of waits of the host
  std::array<gsel_event*, 2> paces{};
  std::vector<gsel_event*> heads{};  // of streams that are joined
  gsel_event* head(size_t number);
  // Messages in one direction between two ranks, where they go on beside others: (peer, 1 to it or 0 from it).
  struct Lane {
    gsel_stream* stream = nullptr;
    gsel_event* event = nullptr;
  };
  std::map<std::pair<int32_t, int>, Lane> lanes{};
  std::vector<int> neighbours{};  // by rank: a descriptor of its process; -1: unknown, or this one
  bool shares_process = false;    // with another rank, and so the default stream of a device
  double timeout_s = 0;

  std::atomic<bool> aborting{false};
  std::thread releasing{};  // after an abort
  std::atomic<bool> leaving{false};
};

namespace gsel_ipc {

// Enqueues for one stream of one link. What order streams or the host keep, it alone knows.
class Enqueue {
 public:
  // timeout_s: of waits of the host.
  Enqueue(gsel_link& link, gsel_stream* stream, double timeout_s);

  const Arena& arena() const { return *link_.arena; }
  gsel_link& link() const { return link_; }
  int32_t rank() const { return link_.rank; }
  int32_t ranks() const { return link_.world_size; }

  void copy(void* to, const void* from, uint64_t bytes) const;
  // Behind what has been enqueued here, and before what is enqueued there.
  void hold(gsel_event* event, gsel_stream* other) const;
  // Now and then the host waits for what it enqueued a while ago, since a driver blocks when a stream is full.
  void pace(int round) const;
  double timeout_s() const { return timeout_s_; }
  // Comes behind what the lane has.
  void await_lane(const gsel_link::Lane& lane) const;

  // to = the sources in order.
  void reduce(void* to, std::span<const void* const> from, gsel_dtype dtype, gsel_op op, uint64_t elems) const;

  // Of a slot or a box, around what is done with it: the writer waits until the reader has emptied it, and fills it;
  // the reader waits until it is full, and empties it.
  void await_empty(Kind kind, int which, int32_t reader) const;
  void fill(Kind kind, int which, std::span<const int32_t> readers) const;
  void await_full(Kind kind, int which, int32_t writer) const;
  void empty(Kind kind, int which, std::span<const int32_t> writers) const;
  // Where the host waits: whether it need not.
  bool is_empty(Kind kind, int which, int32_t reader) const;
  bool is_full(Kind kind, int which, int32_t writer) const;
  // Between two looks of the host at what it waits for; throws when the communicator is broken, or too late.
  void look(int round) const;

 private:
  void wait(const LineAt& line, uint32_t until) const;
  void set(std::span<const LineAt> lines, uint32_t word) const;
  void wait_on_host(const LineAt& line, uint32_t until) const;
  void finish_on_host() const;
  void await(gsel_event* event) const;

  gsel_link& link_;
  gsel_stream* const stream_;
  const Stream native_;
  const double timeout_s_;
  const gsel_between::Clock::time_point deadline_;
};

// A transfer of a message; between this rank and itself both sides are in one group.
struct Part {
  int32_t peer;
  const void* send;  // nullptr: a receive
  void* recv;
  uint64_t bytes;
};
void collective(const Enqueue& on, const gsel_collective& call);

// The messages of a group, which go on beside each other.
class Exchange {
 public:
  // has_others: the group has collectives, too, and they are not before or behind the messages.
  Exchange(const Enqueue& on, std::span<const Part> parts, bool has_others);
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;
  // others: enqueues what goes on beside the messages.
  template <class Others>
  void make_beside(Others&& others) {
    if (is_apart_) pass_apart();
    if (!is_apart_) pass();
    others();
    join();
  }

 private:
  // The messages of one direction between two ranks, one after the other.
  struct Queue {
    int32_t peer;
    bool gives;
    std::deque<Part> parts;
    uint64_t at;  // in the first
    uint64_t bytes() const;
  };
  void copy_own();
  bool pass(Queue& queue, const Enqueue& on);
  void pass();
  void pass_apart();
  void pass_in_turns();
  void pass_as_they_come();
  void fork();
  void join() noexcept;

  const Enqueue& on_;
  std::vector<Queue> queues_;
  bool is_apart_;
  std::vector<gsel_link::Lane*> forked_;
};
bool is_message(gsel_collective_kind kind);  // made of messages
void add_parts(const gsel_link& link, const gsel_collective& call, std::vector<Part>& out);
uint64_t bytes_of(gsel_dtype dtype, uint64_t elems);
// First element of a rank's part.
uint64_t first_of(const uint64_t* counts, const uint64_t* offsets, int32_t rank);

gsel_link* join(const gsel_host_v1* host, const gsel_join& join);
void leave(gsel_link* link) noexcept;
void abort(gsel_link* link) noexcept;

// Parts of the table.
void add_calls(gsel_transport_v2& table);

}  // namespace gsel_ipc
