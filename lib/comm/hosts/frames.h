// comm/hosts/frames.h: exchanges calls and short payloads between the ranks with the same local rank on their hosts,
// over a transport that is prompt. A receive for the next frame of each peer is always posted. Does not know what
// happens if the calls differ.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/hosts/host_transport.h"
#include "comm/hosts/relay.h"
#include "comm/hosts/roster.h"

namespace gsel::hosts {

class Frames {
 public:
  static constexpr size_t kMostHosts = 8;  // few, since each sends to each
  static constexpr uint64_t kShortBytes = 32768;

  // relay: on the first rank of a host, to notice hosts that have left; nullptr on others.
  Frames(const Roster& roster, HostTransport& host_transport, Relay* relay);

  // A call. alike: all ranks of this host make it. goes_on: its bytes are sent before calls have been compared.
  struct Word {
    uint64_t fingerprint;
    bool alike, goes_on;
  };
  struct Came {
    const char* bytes;
    uint64_t n;
  };
  // Sends the call to every other host, with bytes for that host.
  void send(const Word& word, const std::function<Came(size_t host)>& bytes_for);
  // Receives from every other host. what: text of the call, for errors. false: some host makes another call.
  bool receive(int64_t deadline_ns, const std::function<std::string()>& what);
  // The bytes received from a host, valid until the next receive().
  Came from(size_t host) const;
  bool others_go_on() const { return others_go_on_; }

 private:
  struct Frame {
    uint64_t number = 0, fingerprint = 0, bytes = 0;
    uint32_t alike = 0, goes_on = 0;
    char begin[kShortBytes] = {};  // of the bytes; the rest is a transfer of its own
  };
  struct Peer {
    int32_t rank;
    std::array<Frame, 2> frames = {};  // by number
    std::array<std::optional<HostTransport::Posted>, 2> next = {};
    std::vector<char> rest = {};  // all bytes, if they are more than kShortBytes
  };
  struct Sent {
    Word word;
    std::vector<std::unique_ptr<Frame>> frames = {};  // by host
    std::vector<std::vector<char>> rests = {};
    std::vector<HostTransport::Posted> posted = {};
  };
  void post_receive(Peer& peer, uint64_t number);
  bool receive(size_t host, Peer& peer, int64_t deadline_ns, const std::function<std::string()>& what);
  void finish(HostTransport::Posted& posted, size_t host, int64_t deadline_ns,
              const std::function<std::string()>& what);

  const Roster& roster_;
  HostTransport& host_transport_;
  Relay* const relay_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by host; nullptr: this one
  uint64_t number_ = 0;
  std::array<Sent, 2> sent_;  // by number
  bool others_go_on_ = false;
};

}  // namespace gsel::hosts
