// comm/hosts/place.h: where the ranks of several hosts meet, as users write it. Does not know how they meet.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace gsel::hosts {

struct MeetingPlace {
  enum class Kind { address, file, torchrun, pmi, pmix };
  std::string text;  // for errors
  std::string host;  // a name or an address
  std::string port;  // decimal
  Kind kind = Kind::address;
  std::string path{};  // of a file: absolute; others begin with it
  int fd = -1;         // of a process manager
};

// "tcp://HOST:PORT" or "tcp://[ADDRESS]:PORT": there rank 0 listens. In what follows it posts where it does:
// "file:///PATH", and where a launcher says so "torchrun://HOST:PORT", "pmi://FD", "pmix://JOB"
// (comm/launch/launcher.h). source: where the text came from, for the errors (GSEL_ERR_CONFIG).
MeetingPlace parse_meeting_place(std::string_view text, const char* source, bool by_launcher = false);

// What tells hosts apart: ranks with the same text can share memory and meet under a name of the kernel's. GSEL_HOST_ID
// in the environment stands for it.
std::string host_identity();
// The kernel and its network namespace: where names of the kernel's are the same.
std::string name_space();
std::string host_name();

}  // namespace gsel::hosts
