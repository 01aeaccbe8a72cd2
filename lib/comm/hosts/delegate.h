// comm/hosts/delegate.h: how the ranks of one host go to a meeting through their delegate: the first that
// binds a name of the kernel's. The others give it their greetings and get the table from it; they are of the same
// user, or are not heard. Does not know how the delegate reaches rank 0.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/hosts/meeting.h"
#include "comm/hosts/stream.h"
#include "comm/hosts/wire.h"
#include "comm/shm/join/socket.h"

namespace gsel::hosts {

// The name of this host's delegate in a meeting. Nobody can guess it who does not know the job's secret, where the
// ranks have one before.
std::string delegate_name(const Meeting& meeting);

// What "failed" says.
Error error_of(const Word& failed);

class Delegate {
 public:
  // nullopt: somebody has the name.
  static std::optional<Delegate> at(const std::string& name);
  // Without a name: it speaks for itself.
  static Delegate alone() { return Delegate({}); }

  // From the welcome of rank 0, to which the stream leads, to the end of the meeting. is_posted: rank 0's address was,
  // and is the one that answered.
  Met speak(const Meeting& meeting, Stream& stream, const Session& session, bool is_posted);
  void tell_all(const Word& word) noexcept;

 private:
  struct Local {
    explicit Local(shm::Socket given) : socket(std::move(given)) {}
    shm::Socket socket;
    Greeting greeting = {};
    bool is_known = false, has_table = false, is_over = false;
  };
  explicit Delegate(shm::Socket door) : door_(std::move(door)) {}
  Word await_word(const Meeting& meeting, Stream& stream, const Session& session);
  std::optional<Word> poll_once(Stream& stream, const Session& session, int64_t deadline_ns);
  void admit();
  void hear(Local& local, Stream& stream, int64_t deadline_ns);
  bool all_have_table() const;

  shm::Socket door_;
  std::vector<Local> locals_;
};

// As one of the others. nullopt, with why: there is no delegate, or it has not found rank 0. is_foreign: another user
// has the name.
std::optional<Met> follow_delegate(const Meeting& meeting, const std::string& name, const Greeting& own,
                                   bool* is_foreign, std::string* why);

}  // namespace gsel::hosts
