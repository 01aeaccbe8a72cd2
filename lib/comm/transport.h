// comm/transport.h: an opened transport: the table of gsel/transport.h with its context. What makes links of ranks goes
// through here; no caller knows how bytes travel.
#pragma once

#include <gsel/transport.h>

#include <memory>

namespace gsel {

// What another rank began while this one began something else, see Communicator::begin_joint_call.
struct OtherJointCall {
  int32_t rank, kind;
  uint64_t argument;
};

class Transport {
 public:
  explicit Transport(const gsel_transport_v1& table);
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  // The built-in transport: ranks of one host, through shared memory.
  static std::shared_ptr<Transport> open_shm();

  const gsel_transport_v1& table() const { return table_; }
  void* ctx() const { return ctx_; }
  // See gsel_transport_v1.link_join; throws what it returns.
  gsel_link* join(const gsel_join& join) const;

 private:
  const gsel_transport_v1& table_;
  void* ctx_ = nullptr;
};

}  // namespace gsel
