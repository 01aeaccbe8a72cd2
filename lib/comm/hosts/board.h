// comm/hosts/board.h: where rank 0 posts that it listens, and the others read it. Does not know how ranks then meet.
#pragma once

#include <gsel/error.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/hosts/place.h"
#include "comm/hosts/secret.h"

namespace gsel::hosts {

struct Endpoint {
  std::string host;  // its name, and
  int32_t pid = 0;   // who listens there,
  uint16_t port = 0;
  int64_t until_s = 0;                 // until this time of the clock
  std::vector<std::string> addresses;  // as others may reach it
  std::vector<uint8_t> token;          // of this meeting; empty: the ranks have one of their own
  // Or why rank 0 does not listen, signed by it.
  gsel_status failure = GSEL_OK;
  std::string why = {};
  Bytes32 signature = {};
  std::string path = {};  // of the file in which it was found; empty: in none

  void refuse(gsel_status code, const std::string& reason, const Secret& secret);
  bool is_refusal(const Secret& secret) const;
};

// One word of printable ASCII, at most 1,000 bytes.
std::string endpoint_text(const Endpoint& endpoint);
std::optional<Endpoint> parse_endpoint(std::string_view text);

// Of this host's interfaces that are up, without the loopback and links of one wire; those of networks inside of this
// host, such as bridges to containers, where there is nothing else. GSEL_INTERFACE names one; GSEL_ERR_CONFIG where
// there is none of that name.
std::vector<std::string> own_addresses();

class Board {
 public:
  Board() = default;
  Board(const Board&) = delete;
  Board& operator=(const Board&) = delete;
  virtual ~Board() = default;  // takes down what this rank has posted, where that may be done

  virtual void post(const Endpoint& endpoint, int64_t deadline_ns) = 0;
  // Whether every rank must post or read, as at a barrier of a process manager; else the first of each host may read.
  virtual bool asks_all() const { return false; }
  // Those of which each may be rank 0's; none, with the reason in *why: not yet.
  virtual std::vector<Endpoint> read(int64_t deadline_ns, std::string* why) = 0;
};

// job: what tells it from others at the same place, printable ASCII; the same on every rank.
std::unique_ptr<Board> file_board(const MeetingPlace& place, const std::string& job);
std::unique_ptr<Board> torchrun_board(const MeetingPlace& place, const std::string& job);
std::unique_ptr<Board> pmi_board(const MeetingPlace& place);
std::unique_ptr<Board> pmix_board();

}  // namespace gsel::hosts
