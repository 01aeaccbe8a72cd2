// comm/hosts/relay.h: exchanges blocks of bytes between the first ranks of the hosts, along their tree (tree.h): each
// host receives blocks from the hosts below it, sends one to the host above it, receives the answer and forwards it.
// Does not know the contents.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/hosts/lines.h"
#include "comm/hosts/roster.h"

namespace gsel::hosts {

using Block = std::vector<char>;

class Relay {
 public:
  struct Frame {  // sent before each block
    uint64_t number = 0, bytes = 0;
  };

  // lines: of this host, by the host at the other end; the relay uses their streams for calls. wake_fd: readable when
  // the communicator is broken.
  Relay(const Roster& roster, std::vector<std::optional<Line>>& lines, int wake_fd)
      : roster_(roster), tree_(roster.tree()), lines_(lines), wake_fd_(wake_fd) {}

  // Each exchange calls these three once, in this order. what: the exchange, for errors. nullopt: the communicator is
  // broken. GSEL_ERR_PEER and GSEL_ERR_TIMEOUT blame the first rank of the host that is gone or late.
  std::optional<std::vector<Block>> receive_below(int64_t deadline_ns, const char* what);  // by host
  // On the first host: returns `block`.
  std::optional<Block> exchange_above(Block block, int64_t deadline_ns, const char* what);
  void send_below(const Block& answer, int64_t deadline_ns);
  // Sets a function that is called repeatedly during a long wait for a host.
  void attend_with(std::function<void()> attend) { attend_ = std::move(attend); }
  // Whether the host at the other end of a line has left, for code that waits for it elsewhere; what it sent before may
  // have come since. false: there is no line to it, or the communicator is broken. throw_left: GSEL_ERR_PEER.
  bool has_left(size_t host) const;
  [[noreturn]] void throw_left(size_t host, const std::string& what) const;

 private:
  bool await_break() const;
  bool send(size_t host, const Block& block, int64_t deadline_ns);
  Stream::Wait await(Stream& stream, void* bytes, size_t n, int64_t deadline_ns);
  std::optional<Block> receive(size_t host, int64_t deadline_ns, const char* what);

  const Roster& roster_;
  const Tree tree_;
  std::vector<std::optional<Line>>& lines_;
  const int wake_fd_;
  uint64_t number_ = 0;  // of exchanges
  Block message_;
  std::function<void()> attend_ = [] {};
};

}  // namespace gsel::hosts
