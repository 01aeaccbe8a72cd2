// comm/hosts/frames.h: what the ranks with one place on their hosts say to each other over a transport that is prompt:
// which call they make, and short bytes. A receive for the next frame of each is always posted. Does not know what is
// done where they make different calls.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/hosts/carrier.h"
#include "comm/hosts/relay.h"
#include "comm/hosts/roster.h"

namespace gsel::hosts {

class Frames {
 public:
  static constexpr size_t kMostHosts = 8;  // each says it to each
  static constexpr uint64_t kShortBytes = 32768;

  // relay: of the first rank of a host, which knows who has left; nullptr: of another one.
  Frames(const Roster& roster, Carrier& carrier, Relay* relay);

  // A call. alike: the ranks of this host all make it. goes_on: its bytes follow before it has been compared.
  struct Word {
    uint64_t fingerprint;
    bool alike, goes_on;
  };
  struct Came {
    const char* bytes;
    uint64_t n;
  };
  // To every other host, with bytes for it.
  void say(const Word& word, const std::function<Came(size_t host)>& bytes_for);
  // From every other host; asked: the call, in errors. false: they do not all make the call that was said.
  bool hear(int64_t deadline_ns, const std::function<std::string()>& asked);
  // What came with it: of a host, until the next one is heard.
  Came from(size_t host) const;
  bool others_go_on() const { return others_go_on_; }

 private:
  struct Frame {
    uint64_t number = 0, fingerprint = 0, bytes = 0;
    uint32_t alike = 0, goes_on = 0;
    char begin[kShortBytes] = {};  // of the bytes; the rest follows by itself
  };
  struct Peer {
    int32_t rank;
    std::array<Frame, 2> frames = {};  // by number
    std::array<std::optional<Carrier::Posted>, 2> next = {};
    std::vector<char> rest = {};  // of all bytes, if they are no short ones
  };
  struct Said {
    Word word;
    std::vector<std::unique_ptr<Frame>> frames = {};  // by host
    std::vector<std::vector<char>> rests = {};
    std::vector<Carrier::Posted> posted = {};
  };
  void receive(Peer& peer, uint64_t number);
  bool hear(size_t host, Peer& peer, int64_t deadline_ns, const std::function<std::string()>& asked);
  void finish(Carrier::Posted& posted, size_t host, int64_t deadline_ns, const std::function<std::string()>& asked);

  const Roster& roster_;
  Carrier& carrier_;
  Relay* const relay_;
  std::vector<std::unique_ptr<Peer>> peers_;  // by host; nullptr: this one
  uint64_t number_ = 0;
  std::array<Said, 2> said_;  // by number
  bool others_go_on_ = false;
};

}  // namespace gsel::hosts
