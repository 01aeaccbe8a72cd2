// comm/hosts/coordinator.h: the coordinator of an agreement (agreement.h), which receives the requests of the other
// participants and decides. Does not know how it became the coordinator.
#pragma once

#include <vector>

#include "comm/hosts/agreement.h"

namespace gsel::hosts {

// Connections to the recovery listeners of the ranks of a participant.
using ConnectAttempts = std::vector<ConnectAttempt>;

class Coordinator {
 public:
  // before: connections to the participants before this one, none of which is the coordinator.
  Coordinator(Agreement& agreement, std::vector<ConnectAttempts> before);
  Decision run();

 private:
  bool has_all_requests();
  bool is_settled(size_t participant);
  void poll_once();
  void read_requests();
  void take_requests();
  void gather_marks();
  std::optional<int32_t> shrinks() const;
  Decision failed_as_shrunk(int32_t by) const;
  std::optional<Decision> find_conflict() const;
  Decision decide();
  Decision create_job();
  std::vector<int32_t> silent() const;  // ranks that have neither come nor ended
  void send_decision(const Decision& decision);
  bool answer(IncomingRequest& incoming, const Decision& decision, const std::vector<char>& marks);
  std::string shown_text(std::vector<int32_t> ranks) const;
  size_t participant_of(int32_t rank) const;  // participants.size(): none

  Agreement& at_;
  std::vector<ConnectAttempts> attempts_;                 // by participant
  std::vector<std::optional<IncomingRequest>> accepted_;  // by participant
  std::vector<char> marks_;                               // merged from all participants heard
  std::optional<Members> decided_;                        // an earlier decision that a participant has shown
};

// agreement.cc
ConnectAttempts connect_to_listener(const Agreement& agreement, const Participant& participant);
bool may_live(const ConnectAttempt& attempt);
Decision failed_decision(gsel_status code, int32_t about, const std::string& text);
Bytes32 sign_decision(const Agreement& agreement, const Bytes32& nonce, const Decision& decision,
                      const std::vector<char>& marks);

}  // namespace gsel::hosts
