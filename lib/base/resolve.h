// base/resolve.h: resolves host names within a deadline, which getaddrinfo does not have: a resolver that does not
// answer takes minutes. Does not know what the addresses are for.
#pragma once

#include <netdb.h>

#include <cstdint>
#include <memory>
#include <string>

namespace gsel {

struct Resolved {
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> list{nullptr, freeaddrinfo};
  int failure = 0;       // EAI_*
  bool is_late = false;  // the deadline has passed before the resolver answered; failure is EAI_AGAIN
  std::string why() const;
};

// port: may be empty. flags: AI_*. A name that is no address is looked up by a thread, which is left behind at the
// deadline and ends with the resolver's own timeouts.
Resolved resolve(const std::string& host, const std::string& port, int flags, int64_t deadline_ns);

}  // namespace gsel
