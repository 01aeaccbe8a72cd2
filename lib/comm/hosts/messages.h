// comm/hosts/messages.h: messages to and from ranks of other hosts. A message goes as a frame, which says what it is
// and has room for a short one, and for a longer one as a transfer of its own once a receive has asked for it. Frames
// of a rank arrive in order, and a receive takes the first that suits it, wherever it stands. Messages between ranks of
// one host go through shared memory; a receive from any rank looks at both. Does not know collectives.
#pragma once

#include <gsel/comm.h>

#include <array>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/hosts/carrier.h"
#include "comm/hosts/roster.h"
#include "comm/interface/backend.h"
#include "comm/shm/endpoint.h"

namespace gsel::hosts {

class Messages : public std::enable_shared_from_this<Messages> {
 public:
  Messages(const Roster& roster, shm::Endpoint& local, Carrier& carrier);
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  // To the end; several are under way at the same time. timeout_ns: of calls that give none.
  void run(std::span<const gsel_collective> calls, int64_t timeout_ns);
  std::unique_ptr<Pending> start(std::span<const gsel_collective> calls, int64_t timeout_ns);
  // Before the end, where something was sent that may be on its way still: waits until it has arrived, for a while.
  void leave() noexcept;
  bool has_sent() const { return has_sent_; }
  // The carrier goes. Requests may live on, and have ended or failed.
  void close() noexcept;

 private:
  static constexpr size_t kFrames = kBufferedMessages;
  static constexpr uint32_t kFrameTag = 1, kFirstDataTag = 16, kDataTags = 1u << 20;
  static uint32_t data_tag(uint64_t number) { return kFirstDataTag + static_cast<uint32_t>(number % kDataTags); }
  static std::string message_text(const gsel_collective& call);
  enum class Says : uint32_t { message, leaves, has_all };
  struct Frame {
    Says says = Says::message;
    uint32_t reserved = 0;
    uint64_t number = 0, count = 0, bytes = 0;
    int32_t tag = 0;
    gsel_dtype dtype = 0;
    char data[kBufferedBytes] = {};
  };
  struct Arrived {
    uint64_t number, count, bytes;
    int32_t tag;
    gsel_dtype dtype;
    std::vector<char> data;  // of a short one
  };
  struct Peer {
    std::array<Frame, kFrames> frames;
    std::array<std::optional<Carrier::Posted>, kFrames> posted;
    uint64_t sent = 0, came = 0;
    std::deque<Arrived> arrived;  // that no receive has asked for
    std::optional<Error> gone;    // nothing more will arrive
    bool leave_heard = false;     // it has all that this rank has sent
  };
  // One direction of a call.
  struct Half {
    gsel_collective call;  // a send, a receive or a probe
    std::unique_ptr<Pending> local = {};
    std::unique_ptr<Frame> frame = {};
    std::vector<Carrier::Posted> posted = {};
    bool is_met = false, done = false;
  };
  class Started;

  void say(int32_t rank, Peer& peer, Says says);
  void begin(std::span<const gsel_collective> calls, std::list<Half>& halves);
  void begin(Half& half);
  void begin_send(Half& half);
  bool advance(std::list<Half>& halves);  // whether all are done
  void advance(Half& half);
  void take_frames();
  void take_frames(int32_t rank, Peer& peer);
  void match();
  void match(Half& half);
  bool match_from(Half& half, int32_t rank);
  void take(Half& half, int32_t rank, const Arrived& message);
  void look_here(Half& half);
  void give_up(std::list<Half>& halves) noexcept;
  [[noreturn]] void fail_gone(const Half& half, const Error& why);
  [[noreturn]] void fail_late(const Half& half, double seconds);
  bool is_remote(int32_t rank) const { return rank >= 0 && !roster_.is_here(rank); }

  const Roster& roster_;
  shm::Endpoint& local_;
  Carrier& carrier_;
  struct Word {
    Frame frame;
    std::optional<Carrier::Posted> posted;
  };
  bool has_sent_ = false;
  std::mutex mutex_;
  std::list<Word> words_;                     // said to those who leave, or by this rank when it does
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; nullptr: of this host
  std::vector<std::list<Half>*> started_;     // requests that live
  bool is_closed_ = false;
  std::list<Half*> waiting_;  // receives without a message, in the order posted
};

}  // namespace gsel::hosts
