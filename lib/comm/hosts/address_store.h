// comm/hosts/address_store.h: a place where rank 0 posts the address at which it listens, and the others read it. Does
// not know how the ranks meet.
#pragma once

#include <gsel/error.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "comm/hosts/place.h"
#include "comm/hosts/secret.h"

namespace gsel::hosts {

struct Endpoint {
  std::string host;  // name of rank 0's host
  int32_t pid = 0;   // process that listens
  uint16_t port = 0;
  int64_t until_s = 0;                 // expiry, seconds of the wall clock
  std::vector<std::string> addresses;  // possible addresses of the host
  std::vector<uint8_t> token;          // secret of this meeting; empty: the ranks have their own
  // Or the reason why rank 0 does not listen, signed by it.
  gsel_status failure = GSEL_OK;
  std::string why = {};
  Bytes32 signature = {};
  std::string path = {};  // file in which it was found; empty: none

  void refuse(gsel_status code, const std::string& reason, const Secret& secret);
  bool is_refusal(const Secret& secret) const;
};

// One word of printable ASCII, at most 1,000 bytes.
std::string endpoint_text(const Endpoint& endpoint);
std::optional<Endpoint> parse_endpoint(std::string_view text);

// Addresses of this host's interfaces that are up, without loopback and link-local ones; those of networks inside this
// host, such as bridges to containers, only if there is nothing else. GSEL_INTERFACE selects one interface;
// GSEL_ERR_CONFIG if there is none of that name.
std::vector<std::string> own_addresses();

class AddressStore {
 public:
  AddressStore() = default;
  AddressStore(const AddressStore&) = delete;
  AddressStore& operator=(const AddressStore&) = delete;
  virtual ~AddressStore() = default;  // removes what this rank has posted, if that is possible

  virtual void post(const Endpoint& endpoint, int64_t deadline_ns) = 0;
  // Whether every rank must post or read, as in a fence of a process manager; else only the first rank of each host
  // needs to read.
  virtual bool asks_all() const { return false; }
  // Candidates for rank 0's endpoint; empty, with the reason in *why: not posted yet.
  virtual std::vector<Endpoint> read(int64_t deadline_ns, std::string* why) = 0;
};

// job: identifies the job among others at the same place, printable ASCII; the same on every rank.
std::unique_ptr<AddressStore> file_store(const MeetingPlace& place, const std::string& job);
std::unique_ptr<AddressStore> torchrun_store(const MeetingPlace& place, const std::string& job);
std::unique_ptr<AddressStore> pmi_store(const MeetingPlace& place);
std::unique_ptr<AddressStore> pmix_store();
// The address is in the id, the job's secret.
std::unique_ptr<AddressStore> id_store(const Secret& id);

}  // namespace gsel::hosts
