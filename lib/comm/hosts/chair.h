// comm/hosts/chair.h: the chair of a council (council.h), which hears all other parties and decides. Does not know how
// it became the chair.
#pragma once

#include <vector>

#include "comm/hosts/council.h"

namespace gsel::hosts {

using ConnectAttempts = std::vector<ConnectAttempt>;  // connections to the doors of the ranks of a party

class Chair {
 public:
  // before: connections to the parties before this one, none of which has the chair.
  Chair(Council& council, std::vector<ConnectAttempts> before);
  Decision run();

 private:
  bool has_all_petitions();
  bool is_settled(size_t party);
  void poll_once();
  void hear_guests();
  void take_petitions();
  void gather_marks();
  std::optional<int32_t> shrinks() const;
  Decision failed_as_shrunk(int32_t by) const;
  std::optional<Decision> find_conflict() const;
  Decision decide();
  Decision create_job();
  std::vector<int32_t> silent() const;  // ranks that have neither come nor ended
  void send_decision(const Decision& decision);
  bool answer(Visitor& guest, const Decision& decision, const std::vector<char>& marks);
  std::string shown_text(std::vector<int32_t> ranks) const;
  size_t party_of(int32_t rank) const;  // parties.size(): none

  Council& at_;
  std::vector<ConnectAttempts> attempts_;         // by party
  std::vector<std::optional<Visitor>> visitors_;  // by party
  std::vector<char> marks_;                       // merged from all parties heard
  std::optional<Members> decided_;                // an earlier decision that a party has shown
};

// council.cc
ConnectAttempts connect_to_door(const Council& council, const Party& party);
bool may_live(const ConnectAttempt& attempt);
Decision failed_decision(gsel_status code, int32_t about, const std::string& text);
Bytes32 sign_decision(const Council& council, const Bytes32& nonce, const Decision& decision,
                      const std::vector<char>& marks);

}  // namespace gsel::hosts
