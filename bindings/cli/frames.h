// frames.h: messages between `gsel run --hosts` and its agents, over two descriptors: a four-byte length, a kind, and
// the content, in which texts are preceded by their lengths, so nothing is quoted. Never blocks. Does not know what is
// at the other end.
#pragma once

#include <poll.h>

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace gsel::cli {

// To be increased with any change of a frame.
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
  taken = 'T',        // bytes of input that rank 0 has read
  recording = 'C',    // a name, and the JSON of a recording of the host's ranks (docs/trace.md)
  recorded = 'Q',     // all recordings requested by `record` were sent
  done = 'D',         // number of processes that ranks left behind; nothing follows
  // to an agent
  job = 'J',           // HostJob
  go = 'G',            // start the ranks
  signal = 'S',        // its number
  input = 'I',         // for rank 0; nothing: its end
  close_output = 'X',  // stream that nobody reads any more
  record = 'A',        // requests recordings of the running ranks
};

// The content of a frame, written and read in the same order.
class FrameText {
 public:
  FrameText& number(int64_t value);
  FrameText& text(std::string_view value);
  FrameText& texts(const std::vector<std::string>& values);
  // Appends bytes that another FrameText made.
  FrameText& raw(std::string_view bytes);
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// Throws a Failure (GSEL_ERR_VERSION) when the frame has less than is read.
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
  // Takes ownership of both descriptors. `mark`: text before it is no frame, such as the greeting of a shell.
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
  bool has_ended() const { return in_ < 0; }                 // the other side sends nothing more
  bool can_send() const { return out_ >= 0; }                // the other side still reads, as far as is known
  const std::string& before_mark() const { return noise_; }  // its last part
  void close_out();

 private:
  void read_some();
  void write_some();
  void find_mark();
  void close_in();

  int in_, out_;
  std::string mark_;  // not yet seen
  std::string noise_, in_bytes_, out_bytes_;
  std::deque<Frame> frames_;
};

}  // namespace gsel::cli
