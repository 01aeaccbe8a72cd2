// comm/hosts/board.h: where rank 0 posts that it listens, and the others read it. Does not know how ranks then meet.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/hosts/endpoint.h"
#include "comm/hosts/place.h"

namespace gsel::hosts {

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
