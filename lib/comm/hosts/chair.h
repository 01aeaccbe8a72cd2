// comm/hosts/chair.h: who has the chair of a council (council.h): hears all others, and decides. Does not know who
// asked whom before.
#pragma once

#include <span>
#include <vector>

#include "comm/hosts/council.h"

namespace gsel::hosts {

using Knocks = std::vector<Knock>;  // at the doors of the ranks of a party

class Chair {
 public:
  // before: the doors of the parties in front of this one, none of which has the chair.
  Chair(Council& council, std::vector<Knocks> before);
  Decision run();

 private:
  bool has_heard_all();
  bool is_settled(size_t party);
  void poll_once();
  void take_petitions();
  void gather_marks();
  std::optional<int32_t> shrinks() const;
  Decision failed_as_shrunk(int32_t by) const;
  std::optional<Decision> find_clash() const;
  Decision decide();
  Decision found();
  std::vector<int32_t> silent() const;  // that have neither come nor ended
  void tell(const Decision& decision);
  bool answer(Visitor& guest, const Decision& decision, const std::vector<char>& marks);
  std::string shown_text(std::vector<int32_t> ranks) const;
  size_t party_of(int32_t rank) const;  // parties.size(): none

  Council& at_;
  std::vector<Knocks> knocks_;                 // by party
  std::vector<std::optional<Visitor>> heard_;  // by party
  std::vector<char> marks_;                    // of all that were heard
  std::optional<Members> decided_;             // already, as somebody says who has heard it
};

// council.cc
Knocks knock_at(const Council& council, const Party& party);
bool may_live(const Knock& knock);
Decision failed_decision(gsel_status code, int32_t about, const std::string& text);
Bytes32 sign_decision(const Council& council, const Bytes32& nonce, const Decision& decision,
                      const std::vector<char>& marks);

}  // namespace gsel::hosts
