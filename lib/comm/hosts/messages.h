// comm/hosts/messages.h: messages to and from ranks of other hosts. A message is a frame, which describes it and
// contains the data of a short one. The data of a longer one is a separate transfer, which starts when a receive has
// matched the frame. Frames of a rank arrive in order, and a receive takes the first that matches it. Messages between
// ranks of one host go through shared memory; a receive from any rank is posted there as well. Does not know
// collectives. Its files:
//   messages.cc  how calls begin and end
//   started.cc   how callers wait for them
//   sending.cc   messages that are sent
//   arriving.cc  messages that arrive, and the receives that take them
//   moving.cc    which thread advances messages: a caller that waits, else a thread of its own
//   crossing.cc  a message and a collective that wait for each other
//
// A send that fits the buffer on one host does not wait long for its receive: up to kBufferedMessages of a pair stay in
// a buffer of this rank, and the call ends. The other rank fetches such messages, up to kMostKept bytes, when one of
// its receives may match a later message.
#pragma once

#include <gsel/comm.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/os.h"
#include "comm/hosts/host_transport.h"
#include "comm/hosts/roster.h"
#include "comm/interface/backend.h"
#include "comm/shm/endpoint.h"

namespace gsel::hosts {

class Messages : public std::enable_shared_from_this<Messages> {
 public:
  // Interface to the rank's backend.
  class Rank {
   public:
    virtual uint64_t begun() const = 0;     // collectives begun
    virtual bool is_idle() const = 0;       // no collective is under way or may begin during a message
    virtual bool waits_alone() const = 0;   // this thread waits in a collective, and nothing else is under way
    virtual std::string asked() const = 0;  // text of that collective, for errors
    virtual bool in_operation() const = 0;
    // The communicator is broken: returns once the other hosts know why, since this process may end then.
    virtual void await_notified() noexcept = 0;
    // Count an ended message between hosts, with the bytes that this rank sent; and an ended half of a sendrecv on this
    // host, which the local endpoint has counted as a message.
    virtual void count(gsel_collective_kind kind, uint64_t bytes) = 0;
    virtual void count_half_here(bool sent, uint64_t bytes) = 0;

   protected:
    ~Rank() = default;
  };
  Messages(const Roster& roster, shm::Endpoint& local, HostTransport& host_transport, Rank& rank);
  ~Messages();
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;

  // Runs the calls together until all have ended. timeout_ns: of calls that give none.
  void run(std::span<const gsel_collective> calls, int64_t timeout_ns);
  std::unique_ptr<BackendRequest> start(std::span<const gsel_collective> calls, int64_t timeout_ns);
  // Called while this rank waits in a collective, on the thread that waits.
  void attend() noexcept;
  bool under_way() const;
  // Before close(): tells the other ranks, and if this rank needs an answer waits a while until everything that it sent
  // has arrived.
  void leave(bool needs_answer) noexcept;
  bool has_sent() const { return has_sent_; }
  // Before the transport is destroyed. Ends all calls; their requests may outlive it.
  void close() noexcept;

 private:
  static constexpr size_t kFrames = kBufferedMessages;
  static constexpr uint32_t kFrameTag = 1, kFirstDataTag = 16, kDataTags = 1u << 20;
  static constexpr uint64_t kMostKept = uint64_t{64} << 20;
  static uint32_t data_tag(uint64_t number) { return kFirstDataTag + static_cast<uint32_t>(number % kDataTags); }
  enum class FrameKind : uint32_t { message, leaves, has_all, asks, answers, refuses };
  static constexpr uint64_t kNoAnswer = 1;  // number of a frame `leaves`
  struct Frame {
    FrameKind kind = FrameKind::message;
    uint32_t reserved = 0;
    uint64_t number = 0, count = 0, bytes = 0;
    int32_t tag = 0;
    gsel_dtype dtype = 0;
    char data[kBufferedBytes] = {};
  };
  // Content of a frame from a rank that waits long in a message; see crossing.cc.
  struct Question {
    uint64_t id = 0;        // of the wait
    uint64_t begun = 0;     // collectives that the asking rank has begun
    uint64_t received = 0;  // messages of the asked rank that the asking rank has received
    uint64_t sends = 0;     // number of the message that it sends; 0: it receives
    bool operator==(const Question&) const = default;
  };
  // An outgoing frame, with the bytes of a longer message.
  struct Out {
    Frame frame;
    std::vector<char> copy;
    std::vector<HostTransport::Posted> posted;
  };
  // A refused message whose sender waits. Its bytes are received and dropped after the refusal has been sent.
  struct Dropped {
    uint64_t number;
    std::vector<char> data;
    std::unique_ptr<Out> refusal;
    std::optional<HostTransport::Posted> posted = {};  // receive of the bytes
  };
  struct Arrived {
    uint64_t number, count, bytes;
    int32_t tag;
    gsel_dtype dtype;
    bool is_kept = false;                              // its bytes are here or being received
    std::vector<char> data = {};                       // of a kept message
    std::optional<HostTransport::Posted> posted = {};  // receive of the bytes
  };
  struct Peer {
    std::array<Frame, kFrames> frames;
    std::array<std::optional<HostTransport::Posted>, kFrames> posted;
    uint64_t frames_taken = 0;
    uint64_t sent = 0, received = 0;                  // messages
    std::list<Arrived> arrived;                       // not matched by a receive yet
    std::deque<std::unique_ptr<Out>> behind;          // sent by calls that have ended
    std::deque<std::unique_ptr<Out>> control_frames;  // other than messages
    std::optional<Error> gone;                        // the connection has failed
    std::list<Dropped> dropped;
    bool leave_received = false;  // the peer leaves, or has received everything from this rank
    bool has_left = false;
    std::optional<Question> question;  // of the peer, not answered yet
    Question asked;                    // this rank's last question
    uint64_t answered = 0;             // id of this rank's question that the peer has answered
    std::string answer;
  };
  class Started;
  class Driving;
  // One direction of a call.
  struct Half {
    Started& of;
    const gsel_collective& whole;
    gsel_collective call;  // a send, a receive or a probe
    int64_t began_ns;
    std::unique_ptr<BackendRequest> local = {};    // on this host
    std::unique_ptr<Out> out = {};                 // of a send
    std::optional<HostTransport::Posted> in = {};  // receive of the bytes into the caller's buffer
    std::unique_ptr<Arrived> kept = {};            // or a kept message whose bytes are still being received
    std::optional<Error> refused = {};             // of a send that its receiver refuses
    bool is_met = false, done = false;
    bool was_here = false;
  };

  // sending.cc
  std::unique_ptr<Out> word_to(int32_t rank, Peer& peer, FrameKind kind, uint64_t number, std::string_view bytes);
  void send_word(int32_t rank, Peer& peer, FrameKind kind, uint64_t number, std::string_view bytes = {}) {
    peer.control_frames.push_back(word_to(rank, peer, kind, number, bytes));
  }
  void begin_send(Half& half);
  void advance_send(Half& half);
  void tend(int32_t rank, Peer& peer);

  // messages.cc
  void begin(Started& started);
  void begin(Half& half);
  void advance(Half& half);
  void progress(Started& started);
  void end(Started& started, const Error* failure) noexcept;
  void give_up(Started& started) noexcept;
  std::string text_of(const gsel_collective& call) const;
  [[noreturn]] void fail_gone(const Half& half, std::string_view why);
  void fail_if_alone(Half& half);
  void await_notified() noexcept;
  [[noreturn]] void fail_late(const Half& half, double seconds);
  bool is_remote(int32_t rank) const { return rank >= 0 && !roster_.is_here(rank); }
  Peer& peer(int32_t rank) { return *peers_[static_cast<size_t>(rank)]; }
  // body(rank, peer), for each peer on another host that the half waits for.
  template <class Body>
  void for_each_peer(const Half& half, const Body& body) {
    for (int32_t q = 0; q < static_cast<int32_t>(peers_.size()); ++q)
      if (peers_[static_cast<size_t>(q)] && (half.call.root == q || half.call.root == GSEL_ANY_RANK)) body(q, peer(q));
  }

  // arriving.cc
  void take_frames();
  void take_frames(int32_t rank, Peer& peer);
  bool take_frame(int32_t rank, Peer& peer, const Frame& frame);
  bool is_wanted(int32_t rank, int32_t tag) const;
  void match();
  void match(Half& half);
  bool match_from(Half& half, int32_t rank);
  void take(Half& half, int32_t rank, Arrived& message);
  void refuse(const Half& half, int32_t rank, const Arrived& message);
  void receive_refusal(int32_t rank, const Frame& frame);
  void probe_here(Half& half);
  bool has_come_here(Half& half);
  void keep_others(const Half& half);

  // moving.cc
  bool go_on(Started& started, bool looks);
  void go_on_with_all();
  bool has_open() const;  // requests or buffered messages
  void make_thread();
  void wake_thread() noexcept;
  void run_thread();

  // crossing.cc
  void send_question(const Started& started);
  void answer_question(int32_t rank, Peer& peer);
  void detect_crossing(Started& started);
  int32_t crossed_by(const Started& started, const Half& half);

  const Roster& roster_;
  shm::Endpoint& local_;
  HostTransport& host_transport_;
  Rank& rank_;
  const uint64_t most_buffered_;  // bytes of a message
  bool has_sent_ = false;
  mutable std::mutex mutex_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by rank; nullptr: on this host
  std::vector<Started*> started_;             // all requests
  std::list<Half*> waiting_;                  // unmatched receives, in the order posted
  uint64_t kept_bytes_ = 0;                   // of arrived messages
  uint64_t questions_ = 0;
  bool is_closed_ = false;

  // For moving.cc, under the lock except last_attended_ns_.
  uint64_t moves_ = 0;
  int drivers_ = 0;  // callers that wait, and advance all messages
  int64_t last_all_ns_ = 0;
  std::atomic<int64_t> last_attended_ns_{0};
  std::thread thread_;
  std::condition_variable changed_;
  bool is_resting_ = false, is_ending_ = false;  // the thread
};

// Calls under way, one or several together.
class Messages::Started final : public BackendRequest {
 public:
  Started(std::shared_ptr<Messages> messages, std::span<const gsel_collective> calls, int64_t timeout_ns,
          bool is_blocking);
  ~Started() override;
  bool wait(double seconds) override;
  bool waits_for_itself() const override;
  bool tell(const std::shared_ptr<gsel::Listener>& listener) override;
  bool cancel() override;
  void wait_or_cancel() override;

 private:
  friend Messages;
  const uint64_t fork_generation_ = os::fork_generation();
  const std::shared_ptr<Messages> messages_;
  const std::vector<gsel_collective> calls_;
  const int64_t timeout_ns_;
  const bool is_blocking_;  // of run(), not start()

  // Under the lock of the messages.
  std::list<Half> halves_;
  std::optional<Error> failure_;
  std::shared_ptr<gsel::Listener> listener_;
  int64_t since_ns_ = 0;   // start of the timeout; 0: no caller waits yet
  uint64_t question_ = 0;  // id of its question; 0: none
  bool done_ = false;
};

}  // namespace gsel::hosts
