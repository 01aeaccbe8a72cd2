// comm/hosts/place.h: the place where the ranks of several hosts meet, as users write it. Does not know how they meet.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gsel::hosts {

struct MeetingPlace {
  enum class Kind { address, file, torchrun, pmi, pmix, id };
  std::string text;  // for errors
  std::string host;  // a name or an address
  std::string port;  // decimal
  Kind kind = Kind::address;
  std::string path{};  // of a file, absolute; a prefix of other file names
  int fd = -1;         // of a process manager
};

// "tcp://HOST:PORT" or "tcp://[ADDRESS]:PORT": rank 0 listens there. At the other places rank 0 posts its address:
// "file:///PATH", and, only from a launcher, "torchrun://HOST:PORT", "pmi://FD", "pmix://JOB" (comm/launch/launcher.h).
// source: option or variable of the text, for errors (GSEL_ERR_CONFIG).
MeetingPlace parse_meeting_place(std::string_view text, const char* source, bool by_launcher = false);

// Identifies a host: ranks with the same text can share memory and connect by abstract sockets. GSEL_HOST_ID in the
// environment overrides it.
std::string host_identity();
// Identifies the kernel and network namespace, within which abstract socket names are the same.
std::string name_space();
std::string host_name();

}  // namespace gsel::hosts
