// comm/hosts/host_proxy.h: how the ranks of one host take part in a meeting through their proxy, the first rank that
// binds an abstract socket name. The others send their greetings to it and receive the table from it; processes of
// other users are ignored. Does not know how the proxy reaches rank 0.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "comm/hosts/meeting.h"
#include "comm/hosts/stream.h"
#include "comm/hosts/wire.h"
#include "comm/shm/join/socket.h"

namespace gsel::hosts {

// The socket name of this host's proxy. It cannot be guessed without the job's secret, if the ranks have one.
std::string proxy_name(const Meeting& meeting);

// The error in a "failed" message.
Error error_of(const Word& failed);

class HostProxy {
 public:
  // nullopt: the name is taken.
  static std::optional<HostProxy> at(const std::string& name);
  // Without a name: it speaks only for itself.
  static HostProxy alone() { return HostProxy({}); }

  // From rank 0's welcome on the stream to the end of the meeting. own: this rank's greeting.
  Met represent(const Meeting& meeting, Stream& stream, const Session& session, const Greeting& own);
  void notify_all(const Word& word) noexcept;

 private:
  struct Local {
    explicit Local(shm::Socket given) : socket(std::move(given)) {}
    shm::Socket socket;
    Greeting greeting = {};
    bool is_known = false, has_table = false, is_over = false;
  };
  explicit HostProxy(shm::Socket listener) : listener_(std::move(listener)) {}
  Word await_word(const Meeting& meeting, Stream& stream, const Session& session, const Greeting& own);
  std::optional<Word> poll_once(Stream& stream, const Session& session, int64_t deadline_ns);
  void admit();
  void receive(Local& local, Stream& stream, int64_t deadline_ns);
  bool all_have_table() const;

  shm::Socket listener_;
  std::vector<Local> locals_;
};

// For the other ranks of the host. nullopt, with *why: there is no proxy, or it has not found rank 0. is_foreign:
// another user has the name.
std::optional<Met> follow_proxy(const Meeting& meeting, const std::string& name, const Greeting& own, bool* is_foreign,
                                std::string* why);

}  // namespace gsel::hosts
