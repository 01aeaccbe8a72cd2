// program/exchange.h: what ranks owe each other while their programs are followed: messages under way, and the order of
// collectives that each group has agreed on so far.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "program/program.h"

namespace gsel {

struct Message {
  gsel_instr instr;
  std::string where;
};

class Exchange {
 public:
  std::deque<Message>& messages(int32_t from, int32_t to) { return messages_[{from, to}]; }

  // Adds a rank's next collective to its group's order; returns its place there. GSEL_ERR_PROGRAM when the group has
  // another collective in that place.
  size_t post(const Program& program, const gsel_instr& instr, const std::string& where);

  // The rank of the group that has not posted its collective `index` yet, or -1.
  int32_t missing(const Program& program, gsel_axis axis, size_t index);

  // Throws when a message was sent that nobody received.
  void check_received() const;

 private:
  struct Call {
    gsel_instr instr;
    std::vector<int32_t> params;  // of the bucket, in order; empty for the loss
    std::string where;
  };
  struct Group {
    std::vector<Call> calls;
    std::map<int32_t, size_t> posted;  // by rank
  };
  Group& group_of(const Program& program, gsel_axis axis);

  std::map<std::pair<int32_t, int32_t>, std::deque<Message>> messages_;  // by sender and receiver
  std::map<std::pair<gsel_axis, int32_t>, Group> groups_;                // by axis and first rank
};

}  // namespace gsel
