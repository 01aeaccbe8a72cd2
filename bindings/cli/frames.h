// frames.h: messages between `gsel run --hosts` and its agents, over two descriptors: a length of four bytes, a kind,
// and what it says, texts with their lengths before them, so that nothing is quoted. Reads and writes only what does
// not block. Does not know: who is at the other end.
#pragma once

#include <poll.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gsel::cli {

// A change of a frame changes kAgentProtocol as well.
constexpr int kAgentProtocol = 1;

enum class FrameKind : uint8_t {
  // from an agent
  hello = 'H',        // Hello
  ready = 'R',        // the job can be started
  refused = 'F',      // code, message: it cannot
  started = 'P',      // rank, pid
  not_started = 'N',  // rank, status and text of RankEvent
  output = 'O',       // rank, stream, lines
  ended = 'E',        // rank, pid, status
  taken = 'T',        // bytes of input that rank 0 has taken
  recording = 'C',    // a name, and the JSON of what ranks of the host did (docs/trace.md)
  recorded = 'Q',     // all that was asked for by `record`
  done = 'D',         // processes that ranks had left behind: nothing follows
  // to an agent
  job = 'J',           // HostJob
  go = 'G',            // start the ranks
  signal = 'S',        // its number
  input = 'I',         // for rank 0; nothing: its end
  close_output = 'X',  // stream: nobody reads it
  record = 'A',        // ask for recordings of the ranks that run
};

// What a frame says, put together and taken apart in the same order.
class FrameText {
 public:
  FrameText& number(int64_t value);
  FrameText& text(std::string_view value);
  FrameText& texts(const std::vector<std::string>& values);
  // As another one has put it together.
  FrameText& raw(std::string_view bytes);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// A Failure (GSEL_ERR_VERSION) where the frame says less than is asked for.
class FrameReader {
 public:
  explicit FrameReader(std::string_view bytes) : left_(bytes) {}
  int64_t number();
  std::string text();
  std::vector<std::string> texts();

 private:
  std::string_view take(size_t n);
  std::string_view left_;
};

struct Frame {
  FrameKind kind;
  std::string bytes;
};

class Channel {
 public:
  // Takes over both descriptors. `mark`: what comes before it is no frame, such as what a shell says when it starts.
  Channel(int in, int out, std::string mark = {});
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void send(FrameKind kind, const FrameText& text = {});
  void send_mark(const std::string& mark);
  size_t unsent() const { return out_bytes_.size(); }

  void add_to(std::vector<pollfd>& polls, bool reads = true) const;
  void serve(const std::vector<pollfd>& polls);
  std::optional<Frame> take();
  bool has_ended() const { return in_ < 0; }                 // the other side says nothing more
  bool can_send() const { return out_ >= 0; }                // the other side takes what is sent, as far as is known
  const std::string& before_mark() const { return noise_; }  // the end of it
  void close_out();

 private:
  void read_some();
  void write_some();
  void find_mark();
  void close_in();

  int in_, out_;
  std::string mark_;  // still awaited
  std::string noise_, in_bytes_, out_bytes_;
  std::deque<Frame> frames_;
};

}  // namespace gsel::cli
